import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from pin.access.checking import TokenVerifier
from pin.config.sections import AuthOptions
from pin.rules.contract import NEWS_CLIENT
from pin.stack.local import ensure_keys
from tests.acceptance.processes import environment
from tests.cli.conftest import Pin

USER, TENANT = UUID(int=1 << 100), UUID(int=1 << 101)


@pytest.mark.req("C6")
def test_help_names_every_command_and_loads_nothing_that_is_slow() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pin.cli", "--help"],
        env=environment(COLUMNS="200"),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    for command in ("migrate", "web", "scheduler", "worker", "up", "demo", "quarantine", "config", "token", "status"):
        assert re.search(rf"\b{command}\b", ended.stdout)
    imported = {match[1] for match in re.finditer(r"\| +(\S+)$", ended.stderr, re.MULTILINE)}
    assert "pin.cli" in imported
    slow = {"sqlalchemy", "pydantic", "litestar", "dramatiq", "psycopg", "alembic", "httpx", "jwt", "structlog"}
    assert imported & (slow | {"pin.config.settings", "pin.stack.supervisor", "actors", "web"}) == set()


@pytest.mark.req("C6")
def test_the_version_is_said(pin: Pin) -> None:
    assert re.fullmatch(r"pin, version \d+\.\d+\.\d+\n", pin("--version").out)


@pytest.mark.req("J7")
def test_right_settings_are_called_right_and_wrong_ones_all_named(pin: Pin) -> None:
    assert pin("config", "check").out == "the settings are right\n"

    wrong = pin("config", "check", PIN_RETRY__BATCH_SIZE="-1", PIN_WORKER__TIME_LIMIT="soon", PIN_DATABASE="x")

    assert (wrong.code, wrong.out) == (78, "")
    assert "retry.batch_size = -1" in wrong.err
    assert "worker.time_limit = soon" in wrong.err
    assert "PIN_DATABASE: is no setting; did you mean PIN_DATABASE_URL?" in wrong.err


@pytest.mark.req("J7", "J24")
def test_show_prints_each_setting_as_the_environment_would_hold_it_and_no_password(pin: Pin, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PIN_RETRY__BATCH_SIZE=7\n")

    shown = pin("config", "show", PIN_DATABASE_URL="postgresql://pin:hunter2@db/pin", PIN_CONTEXTS="news")

    assert shown.code == 0
    said = dict(line.split("=", 1) for line in shown.out.splitlines())
    assert said["PIN_DATABASE_URL"] == "postgresql://pin:***@db/pin"
    assert said["PIN_CONTEXTS"] == "news"
    assert said["PIN_RETRY__BATCH_SIZE"] == "7"
    assert said["PIN_RETRY__POLLING_INTERVAL"] == "0:05:00"
    assert "hunter2" not in shown.out + shown.err

    # What it prints is what it would read.
    given = {name: value for name, value in said.items() if value and name != "PIN_DATABASE_URL"}
    assert pin("config", "check", **given).code == 0


@pytest.mark.req("G10")
def test_tokens_are_signed_with_the_local_stacks_key(pin: Pin, tmp_path: Path) -> None:
    keys = ensure_keys(tmp_path / "state")
    verifier = TokenVerifier.from_settings(AuthOptions(public_keys=(keys.public,), leeway=timedelta(seconds=10)))
    state = {"PIN_STATE_DIR": str(tmp_path / "state")}

    user = pin("token", "user", "--user", str(USER), "--tenant", str(TENANT), **state)
    m2m = pin("token", "m2m", **state)

    caller = verifier.verify(user.out.strip())
    assert (caller.user_id, caller.tenant_id, caller.client) == (USER, TENANT, None)
    assert user.err == f"user {USER} of tenant {TENANT}\n"
    assert verifier.verify(m2m.out.strip()).client == NEWS_CLIENT
    assert ensure_keys(tmp_path / "state") == keys


@pytest.mark.req("G10")
def test_a_token_without_a_key_or_with_a_wrong_lifetime_is_refused_in_words(pin: Pin, tmp_path: Path) -> None:
    without = pin("token", "m2m", PIN_STATE_DIR=str(tmp_path / "none"))
    ensure_keys(tmp_path / "state")
    wrong = pin("token", "m2m", "--lifetime", "05:00", PIN_STATE_DIR=str(tmp_path / "state"))

    assert (without.code, without.out) == (1, "")
    assert "start one with `pin up`" in without.err
    assert (wrong.code, wrong.out) == (2, "")
    assert "ambiguous" in wrong.err
