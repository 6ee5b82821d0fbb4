"""The pages say what the code does: both are read, and each must have what the other has."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from pydantic import BaseModel

from db.outbox.plans import PlanState
from db.outbox.runs import RunResult
from db.selections import SnapshotRowStatus
from pin.cli import cli
from pin.cli.faults import FAILED, NO_DATABASE, USAGE
from pin.rules.contract import ErrorCode
from pin.operations import RequeueResult
from pin.operations.audit import ACTIONS
from pin.operations.reconcile import FindingKind
from pin.operations.searching import TOKENS
from pin.operations.verdict import VerdictKind
from pin.rules.outbox import ErrorClass, OutcomeKind, Status, Verdict
from pin.config.sources import PREFIX
from pin.config.sections import AuthOptions
from pin.config.settings import Settings
from pin.config.faults import EXIT_BAD_SETTINGS, known_names
from pin.access.signing import new_key_pair
from tests.docs.reading import DOCS, ROOT, listed, log_events, metric_names, page, rows, unnamed_log_calls
from web.app import create_app
from web.openapi import operations

_PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


@pytest.mark.req("J7")
def test_every_setting_has_its_row_and_every_row_its_setting() -> None:
    assert {name for name in listed("settings.md") if name.startswith(PREFIX)} == known_names(Settings, PREFIX)


@pytest.mark.req("J7")
def test_the_rows_of_settings_give_their_toml_keys_and_defaults() -> None:
    given = listed("settings.md")
    for name, key, default in _defaults(Settings, PREFIX):
        toml, shown, *_ = given[name].split(" | ")
        assert (name, toml, shown) == (name, f"`{key}`", f"`{default}`" if default else "none")


@pytest.mark.req("J25", "D12")
def test_every_metric_has_its_row_and_every_row_its_metric() -> None:
    assert set(listed("metrics.md")) == metric_names()


@pytest.mark.req("J24")
def test_every_log_event_has_its_row_and_every_row_its_event() -> None:
    assert set(listed("logs.md")) == set(log_events())
    assert unnamed_log_calls() == []


@pytest.mark.req("J24")
def test_the_rows_of_log_events_name_their_fields() -> None:
    documented = listed("logs.md")
    for event, fields in log_events().items():
        missing = {field for field in fields if f"`{field}`" not in documented[event]} - {"exc_info"}
        assert not missing, f"docs/logs.md: {event} lacks {missing}"


@pytest.mark.req("G3", "D4")
def test_every_error_code_and_class_has_its_row() -> None:
    assert set(listed("errors.md")) == {*(code.value for code in ErrorCode), *(kind.value for kind in ErrorClass)}


@pytest.mark.req("J7")
def test_the_exit_codes_are_listed() -> None:
    assert {row[0] for row in rows("errors.md") if row[0].isdigit()} == {
        str(code) for code in (0, FAILED, USAGE, NO_DATABASE, EXIT_BAD_SETTINGS)
    }


@pytest.mark.req("J9")
def test_the_lifecycles_name_every_state_and_outcome() -> None:
    text = page("lifecycle.md")
    kinds = (Status, OutcomeKind, Verdict, RunResult, RequeueResult, SnapshotRowStatus)
    assert [value for kind in kinds for value in kind if f"`{value}`" not in text] == []
    assert {row[0].strip("`") for row in rows("lifecycle.md") if row[-1].startswith(("yes", "no"))} == set(RunResult)


@pytest.mark.req("C5")
def test_every_route_has_its_row_and_every_row_its_route(tmp_path: Path) -> None:
    private, public = new_key_pair(tmp_path, "news")
    app = create_app(Settings(auth=AuthOptions(public_keys=(public,), m2m_private_key=private)))
    served = {f"{method.upper()} {path}" for path, method, _ in operations(app.routes) if method != "head"}
    assert set(listed("api.md")) == served


@pytest.mark.req("C6", "J29")
def test_every_command_has_its_row_and_every_row_its_command() -> None:
    assert {name for name in listed("cli.md") if name.startswith("pin ")} == set(commands())


@pytest.mark.req("C6", "J29")
def test_the_rows_of_commands_name_their_options() -> None:
    documented = listed("cli.md")
    for name, command in commands().items():
        takes = documented[name].split(" | ")[0]
        options = {option for one in command.params for option in one.opts if option.startswith("--")}
        assert set(re.findall(r"--[a-z-]+", takes)) == options - {"--output"}, name


@pytest.mark.req("C6", "J29")
def test_commands_on_the_pages_are_there_with_their_options() -> None:
    known = commands()
    told = 0
    for path in _PAGES:
        for span in re.findall(r"\bpin ((?:[a-z0-9]+ ?)+[^`\n]*)`", _code(path)):
            words = span.split()
            names = [" ".join(["pin", *words[:length]]) for length in (3, 2, 1)]
            name = next((one for one in names if one in known), None)
            if name is None:
                assert any(one.startswith(f"pin {words[0]} ") for one in known), f"{path.name}: pin {span}"
                continue
            options = {option for one in known[name].params for option in one.opts} | {"--help"}
            given = set(re.findall(r"(?<=\s)--[a-z-]+", span))
            assert given <= options, f"{path.name}: pin {span}"
            told += 1
    assert told > len(known)


@pytest.mark.req("J29")
def test_every_verdict_that_asks_for_somebody_has_its_runbook() -> None:
    source = (ROOT / "pin" / "operations" / "verdict.py").read_text(encoding="utf-8")
    named = set(re.findall(r'^\s+"([a-z-]+)",$', source, re.MULTILINE))
    assert {"backlog", "no-runs", "unconsumed"} <= named
    assert [name for name in named if not (DOCS / "runbooks" / f"{name}.md").exists()] == []


@pytest.mark.req("J27", "J29")
def test_verdicts_tokens_actions_and_plans_are_listed() -> None:
    text = page("cli.md")
    assert {name for name in listed("cli.md") if name.endswith(":")} == set(TOKENS)
    assert {name for name in listed("cli.md") if name in ACTIONS} == set(ACTIONS)
    assert {row[0].strip("`") for row in rows("cli.md")} >= {kind.value for kind in VerdictKind}
    assert [kind.value for kind in FindingKind if f"`{kind.value}`" not in text] == []
    assert [state.value for state in PlanState if f"`{state.value}`" not in page("lifecycle.md")] == []


@pytest.mark.req("C2")
def test_each_gap_has_one_decision_and_the_list_names_every_page() -> None:
    gaps = [int(number) for number in re.findall(r"^\| G(\d+) \|", page("requirements.md"), re.MULTILINE)]
    decided = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "decisions").glob("[0-9]*.md")}
    for gap in gaps:
        found = [text for name, text in decided.items() if name.startswith(f"{gap:04}-")]
        assert [text.startswith(f"# G{gap}. ") for text in found] == [True], f"G{gap}"
    assert set(re.findall(r"\]\((\d{4}-[^)]+)\)", page("decisions/README.md"))) == set(decided)


@pytest.mark.req("C1")
def test_every_dependency_has_a_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[dependency-groups]")[0]
    required = re.findall(r'^    "([a-z0-9-]+)[\[>=<;, ]', project, re.MULTILINE)
    reasons = page("decisions/0101-dependencies.md").replace("…-exporter", "opentelemetry-exporter")
    named = {word for row in re.findall(r"^\| ([^|]+) \|", reasons, re.MULTILINE) for word in re.split(r"[, ]+", row)}
    assert len(required) > 20
    assert set(required) <= named


@pytest.mark.req("C2")
def test_the_commands_on_the_pages_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for path in _PAGES for name in re.findall(r"\bmake ([a-z]+)\b[^`\n]*`", _code(path))}
    assert {"demo", "test", "up"} <= named <= targets


@pytest.mark.req("C2")
def test_links_between_the_pages_lead_somewhere() -> None:
    for path in _PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            target, _, anchor = unquote(link).partition("#")
            if "://" in target:
                continue
            found = path.parent / target if target else path
            assert found.exists(), f"{path.name}: {link}"
            assert not anchor or anchor in _anchors(found), f"{path.name}: {link}"


@pytest.mark.req("C2")
def test_the_pages_speak_of_no_one_machine() -> None:
    for path in _PAGES:
        found = re.findall(r"/(?:work|home|root|Users)/|\bTODO\b|\bFIXME\b", path.read_text(encoding="utf-8"))
        assert not found, path


def test_every_file_and_name_that_a_newcomer_is_sent_to_is_there() -> None:
    asked = rows("finding-your-way.md")
    assert len(asked) == 20
    for question, file, name in asked:
        code = (ROOT / file.strip("`")).read_text(encoding="utf-8")
        defined = rf"^\s*(?:async )?(?:def|class) {name.strip('`')}\b|^{name.strip('`')}\b"
        assert re.search(defined, code, re.MULTILINE), question
    named = re.findall(r"`([\w/]+\.py)`", page("architecture.md"))
    assert len(named) > 15
    assert [file for file in named if not (ROOT / file).is_file()] == []


@pytest.mark.req("C2")
def test_the_changelog_has_room_for_what_is_not_released() -> None:
    assert re.search(r"^## Unreleased$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def commands(group: click.Group = cli, path: str = "pin") -> dict[str, click.Command]:
    """Every command that does something, by its whole name."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        whole = f"{path} {name}"
        found |= commands(command, whole) if isinstance(command, click.Group) else {whole: command}
    return found


def _defaults(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    """(variable, TOML key, default as the page writes it) of each setting."""
    for field, info in model.model_fields.items():
        name = f"{prefix}{field}".upper()
        if isinstance(info.default, BaseModel):
            yield from _defaults(type(info.default), f"{name}__")
        elif isinstance(info.default, tuple):
            yield name, field, ",".join(str(part) for part in info.default)
        elif info.default is None:
            yield name, field, ""
        else:
            text = str(info.default)
            yield name, field, f"0{text}" if re.fullmatch(r"\d:\d\d:\d\d", text) else text


def _code(path: Path) -> str:
    """Inline code of a page, each span closed by a backtick; blocks line by line."""
    text = path.read_text(encoding="utf-8")
    blocks = [line.strip() + "`" for line in text.splitlines() if line.startswith("    ")]
    return "\n".join([*(f"{span}`" for span in re.findall(r"`([^`\n]+)`", text)), *blocks])


def _anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
