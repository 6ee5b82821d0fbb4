"""Each process of the product on its own, started the ordinary way, and what it does with wrong settings."""

import re
import subprocess
import sys

import psycopg
import pytest

from db.embedded.server import EmbeddedServer
from tests.acceptance.processes import PIN, ROOT, environment, started
from tests.serving import Keys, keys
from tests.waiting import line

__all__ = ["keys"]

SCHEDULER = [sys.executable, "scheduler.py"]
WORKER = [sys.executable, "-m", "dramatiq", "actors", "-p", "1", "-t", "1", "--worker-shutdown-timeout", "2000"]
WEB = [sys.executable, "-m", "uvicorn", "--factory", "web.app:create_app", "--port", "0"]


@pytest.mark.req("C2", "C3", "C4", "C5", "C6")
@pytest.mark.parametrize(
    ("command", "says", "codes"),
    [
        (SCHEDULER, "scheduler started", {0}),
        (WORKER, "worker started", {0}),
        (WEB, "Uvicorn running on", {0, -15}),  # uvicorn raises SIGTERM again once it has stopped
    ],
    ids=["scheduler.py", "dramatiq actors", "uvicorn"],
)
def test_each_process_starts_by_itself_and_stops_at_sigterm(
    database: str, keys: Keys, command: list[str], says: str, codes: set[int]
) -> None:
    settings = {
        "PIN_DATABASE_URL": database,
        "PIN_AUTH__PUBLIC_KEYS": str(keys.public),
        "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
        "PIN_WEB__PORT": "0",
    }
    with started(command, settings) as process:
        line(process, says, within=60)
        process.terminate()
        process.communicate(timeout=15)
        assert process.returncode in codes


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    "command",
    [SCHEDULER, WORKER, WEB, [*PIN, "migrate"], [*PIN, "config", "check"]],
    ids=["scheduler.py", "dramatiq actors", "uvicorn", "pin migrate", "pin config check"],
)
def test_wrong_settings_are_refused_all_at_once(command: list[str]) -> None:
    wrong = {
        "PIN_RETRY__BATCH_SIZE": "0",
        "PIN_RETRY__LOCK_TTL": "1m",
        "PIN_RETRY__POLLING_INTERVAL": "05:00",
        "PIN_RETRY__MAX_ATEMPTS": "3",
    }
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(**wrong), capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.returncode == 78
    for field in ("retry.batch_size = 0", "retry.lock_ttl = 0:01:00", "retry.polling_interval = 05:00"):
        assert field in ended.stderr
    assert "PIN_RETRY__MAX_ATEMPTS: is no setting; did you mean PIN_RETRY__MAX_ATTEMPTS?" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.req("C6", "J8")
def test_migrate_makes_the_database_and_says_from_where_to_where(server: EmbeddedServer) -> None:
    server.create_database("migrated_by_command")
    url = server.url("migrated_by_command")

    def migrate() -> str:
        settings = environment(PIN_DATABASE_URL=url)
        return subprocess.run([*PIN, "migrate"], env=settings, capture_output=True, text=True, check=True).stdout

    assert re.fullmatch(r"empty -> \d{4}\n", migrate())
    assert re.fullmatch(r"already at \d{4}\n", migrate())
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM news.snapshot_detach_outbox").fetchone() == (0,)
