"""`pin demo` as whoever evaluates the product runs it, and the eyes it looks with."""

import re
import subprocess
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, text

from pin.clock import new_id, utc_now
from pin.config.loading import load_settings
from pin.demo import checks
from pin.demo.run import TIMINGS
from pin.demo.story import Ledger
from pin.rules.contract import Reason
from tests.acceptance.processes import PIN, alive, environment, open_folder

__all__ = ["open_folder"]


@pytest.mark.req("C1", "C3", "C4", "C5", "C6", "D17", "G3", "G13", "J15", "J21", "J22", "J31", "J32", "J33")
def test_the_demo_proves_the_job_and_leaves_nothing_behind(open_folder: Path) -> None:
    began = time.monotonic()
    ended = subprocess.run(
        [*PIN, "demo"],
        cwd=open_folder,
        env=environment(TMPDIR=str(open_folder), PIN_RETRY__BATCH_SIZE="an evaluator's own setting"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    took = time.monotonic() - began

    assert ended.returncode == 0, ended.stderr
    result = re.fullmatch(r"demo ok: detached=(\d+) quarantined=1 pending=0 lag_p99=(\d+\.\d+)\n", ended.stdout)
    assert result, ended.stdout
    assert int(result[1]) >= 100
    assert took < 120
    assert "selections is down" in ended.stderr
    assert re.search(r"the backlog: \d{2,} intents are Pending", ended.stderr)
    assert alive(str(open_folder)) == []
    assert [path.name for path in open_folder.iterdir() if path.name.startswith("pin-demo")] == []


@pytest.mark.req("C6", "J7")
def test_the_demos_timings_keep_to_the_rules_of_production(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in TIMINGS.items():
        monkeypatch.setenv(name, value)

    retry = load_settings().retry

    assert retry.polling_interval == timedelta(seconds=1)
    assert retry.max_attempts == 100


def snapshot(connection: Connection, status: str, reason: str | None, *, event: bool) -> UUID:
    made, now = new_id(), utc_now()
    connection.execute(
        text("""
            INSERT INTO selections.snapshot
                (id, status, selection_id, content, detached_at, detach_reason, created_at, updated_at)
            VALUES (:id, :status, :id, '{}', CASE WHEN CAST(:reason AS text) IS NOT NULL THEN CAST(:now AS timestamptz)
                END, :reason, :now, :now)
        """),
        {"id": made, "status": status, "reason": reason, "now": now},
    )
    if event:
        connection.execute(
            text("INSERT INTO selections.snapshot_detached_event VALUES (:id, :id, :reason, :id, :now)"),
            {"id": made, "reason": reason, "now": now},
        )
    return made


@pytest.mark.req("D17", "J21")
@pytest.mark.parametrize(
    ("status", "reason", "event", "expected"),
    [
        ("Active", None, False, Reason.POST_DELETED),
        ("Detached", "BlockReplaced", True, Reason.POST_DELETED),
        ("Detached", "PostDeleted", False, Reason.POST_DELETED),
        ("Detached", "PostDeleted", True, None),
    ],
)
def test_the_demo_sees_a_snapshot_that_is_not_as_it_must_be(
    engine: Engine, status: str, reason: str | None, event: bool, expected: Reason | None
) -> None:
    with engine.begin() as connection:
        wrong = snapshot(connection, status, reason, event=event)
        right = snapshot(connection, "Detached", "PostDeleted", event=True)

        said = list(checks.wrong_snapshots(connection, Ledger(snapshots={wrong: expected, right: Reason.POST_DELETED})))

    assert said
    assert all(str(wrong) in line for line in said)


@pytest.mark.req("D17", "J33")
def test_the_demo_sees_an_orphan_a_missing_snapshot_and_a_missing_quarantine(engine: Engine) -> None:
    absent, bad = new_id(), new_id()
    with engine.begin() as connection:
        orphan = snapshot(connection, "Active", None, event=False)

        said = "\n".join(checks.wrong_snapshots(connection, Ledger(snapshots={absent: None})))
        quarantine = list(checks.wrong_quarantine(connection, bad))

    assert f"snapshot {absent} is missing" in said
    assert f"snapshot {orphan} is Active" in said
    assert quarantine == ["quarantined are [], not the impossible intent alone"]
