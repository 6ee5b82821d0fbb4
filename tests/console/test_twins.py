"""Every command that a page shows is one that the command line takes; and the local stack opens the console."""

import shlex
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from db.runner.lock import runner_lock
from pin.access.operators import Role, read_operators, verify_password
from pin.cli import cli
from pin.clock import utc_now
from pin.config.sections import OpsOptions, WebOptions
from pin.config.settings import Settings
from pin.stack.plan import StackOptions, specs
from pin.stack.up import options_of, with_console
from tests.console import seeds
from tests.console.browsing import Reading, Visitor

pytestmark = pytest.mark.req("C6")

_EXPECTED = {
    "pin status",
    "pin runs list",
    "pin runs show",
    "pin entries list",
    "pin entries show",
    "pin quarantine groups",
    "pin quarantine requeue",
    "pin quarantine plan show",
    "pin quarantine plan stop",
    "pin snapshot show",
    "pin post show",
    "pin audit list",
    "pin system",
    "pin db check",
    "pin config show",
    "pin lock show",
    "pin lock release",
    "pin pause",
    "pin resume",
}


def _accepted(line: str) -> str:
    """The command that takes this line, by its path. Raises click.UsageError for one that is refused."""
    _, *words = shlex.split(line)
    command: click.Command = cli
    path = ["pin"]
    while isinstance(command, click.Group):
        path.append(words.pop(0))
        command = command.commands[path[-1]]
    command.make_context(path[-1], words)
    return " ".join(path)


def test_every_command_on_the_pages_is_taken(operator: Visitor, engine: Engine, database: str) -> None:
    now, post = utc_now(), uuid4()
    with engine.begin() as connection:
        run = seeds.run(connection, now)
        entry = seeds.entry(connection, now, status="Quarantined", error='it\'s "bad" $(reboot)', post_id=post)
        seeds.entries(connection, now, 8, status="Quarantined", error="HTTP 503")
    operator.change("/ops/pause", reason="to see how one resumes")
    sets = ({"what": "all"}, {"what": "selected", "id": str(entry)})
    plans = [operator.change("/ops/quarantine/preview", **one).headers["location"] for one in sets]
    commands = _commands(operator, plans)
    operator.change(f"{plans[0]}/start", reason="try", canary="1")
    with runner_lock(database, timedelta(minutes=6)):
        paths = ["/ops", "/ops/runs", "/ops/entries?q=state:Pending+error:%22HTTP%20503%22", "/ops/quarantine"]
        paths += ["/ops/audit?action=requeue&actor=otto", "/ops/system", f"/ops/subject?id={post}", plans[0]]
        paths += [f"/ops/runs/{run}", f"/ops/entries/{entry}", f"/ops/subject?id={uuid4()}"]
        commands |= _commands(operator, paths)
    assert operator.change("/ops/resume", reason="seen").status_code == 303
    commands |= _commands(operator, ["/ops"])
    assert {_accepted(line) for line in commands} == _EXPECTED


def _commands(operator: Visitor, paths: list[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        for part in operator.get(path).text.split("<span data-copy>")[1:]:
            found.add(Reading(part.partition("</span>")[0]).text)
    return found


def test_a_line_of_the_operators_file_is_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["operator", "ada", "--role", "operator"], input="sesame street\n")
    assert done.exit_code == 0
    assert "sesame" not in done.output
    path = tmp_path / "operators"
    path.write_text(done.stdout)
    (ada,) = read_operators(path).values()
    assert (ada.name, ada.role) == ("ada", Role.OPERATOR)
    assert verify_password("sesame street", ada.password_hash)
    for name, password in (("a b", "x"), ("ada", "")):
        assert CliRunner().invoke(cli, ["operator", name], input=f"{password}\n").exit_code != 0


def test_the_local_stack_opens_the_console_on_this_machine_alone(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, web=WebOptions(port=0))
    options, told = with_console(settings, options_of(settings, workers=1, schedulers=1))
    assert options.operators_file is not None
    assert options.operators_file.stat().st_mode & 0o077 == 0
    name, password = told.partition("(name ")[2].rstrip(")").split(", password ")
    (operator,) = read_operators(options.operators_file).values()
    assert (operator.name, operator.role) == (name, Role.OPERATOR)
    assert verify_password(password, operator.password_hash)
    assert _console_of(options) == {"news": "news,ops", "selections": "selections"}
    again, _ = with_console(settings, options)
    assert not verify_password(password, read_operators(again.operators_file or Path())[name].password_hash)


def test_the_local_stack_keeps_the_console_shut_where_others_reach_it(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, web=WebOptions(port=0))
    reached = replace(options_of(settings, workers=1, schedulers=1), host="0.0.0.0")  # noqa: S104 - a name, never bound
    options, told = with_console(settings, reached)
    assert (options.operators_file, told.partition(",")[0]) == (None, "closed")
    assert _console_of(options) == {"news": "news", "selections": "selections"}
    ours = tmp_path / "ours"
    named = Settings(state_dir=tmp_path, ops=OpsOptions(operators_file=ours))
    options, _ = with_console(named, reached)
    assert options.operators_file == ours


def _console_of(options: StackOptions) -> dict[str, str]:
    planned = specs(options, "postgresql://x/y", None)
    return {spec.name: spec.environment["PIN_CONTEXTS"] for spec in planned if "PIN_CONTEXTS" in spec.environment}
