"""Purge, and what the system says of itself."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.operations import audit, purge, system
from tests.job.scene import change, query, stage

DAY = timedelta(days=1)


@pytest.mark.req("J29")
def test_done_entries_past_the_age_go_with_their_history_and_nothing_else(engine: Engine) -> None:
    now = utc_now()
    old = stage(engine, [new_id() for _ in range(5)], now=now - 9 * DAY)
    waiting = stage(engine, [new_id()], now=now - 9 * DAY)
    young = stage(engine, [new_id()], now=now)
    done = "UPDATE news.snapshot_detach_outbox SET status = 'Done' WHERE id = ANY(:ids)"
    change(engine, done, ids=[*old, *young])
    for entry in (old[0], waiting[0]):
        change(
            engine,
            """INSERT INTO news.snapshot_detach_attempt
                   (entry_id, entry_version, attempt, outcome, duration_ms, worker, recorded_at)
               VALUES (:id, 1, 1, 'Succeeded', 1, 'w', :at)""",
            id=entry,
            at=now - 9 * DAY,
        )
    would = purge.preview(engine, older_than=7 * DAY, now=now)
    assert (would.entries, would.attempts, would.events) == (5, 1, 0)
    assert len(query(engine, "SELECT FROM news.snapshot_detach_outbox")) == 7

    gone = list(purge.purge(engine, older_than=7 * DAY, actor="ada", reason="space", now=now, batch=2))

    assert [one.entries for one in gone] == [2, 2, 1]
    left = query(engine, "SELECT id FROM news.snapshot_detach_outbox")
    assert {row.id for row in left} == {*waiting, *young}
    assert len(query(engine, "SELECT FROM news.snapshot_detach_attempt")) == 1
    rows = audit.list_audit(engine, action="purge").rows
    assert sorted(row.details["entries"] for row in rows) == [1, 2, 2]


@pytest.mark.req("J29")
def test_a_purge_is_refused_without_reason_or_for_what_is_young(engine: Engine) -> None:
    with pytest.raises(ValueError, match="reason"):
        purge.purge(engine, older_than=7 * DAY, actor="ada", reason="", now=utc_now())
    with pytest.raises(ValueError, match="late reply"):
        purge.purge(engine, older_than=timedelta(minutes=59), actor="a", reason="r", now=utc_now())
    stopped = purge.purge(engine, older_than=DAY, actor="a", reason="r", now=utc_now(), stopping=lambda: True)
    assert list(stopped) == []


@pytest.mark.req("J29", "J24")
def test_the_system_says_what_it_is_and_no_secret(engine: Engine, database: str) -> None:
    found = system.read_system(engine, Settings(database_url="postgresql://pin:hunter2@db/pin"))
    assert found.is_migrated
    assert {"pin", "python", "postgresql", "dramatiq-pg"} <= found.versions.keys()
    assert ("PIN_DATABASE_URL", "postgresql://pin:***@db/pin") in found.settings
    assert "hunter2" not in repr(found)
    assert "news.snapshot_detach_outbox" in {table.table for table in found.tables}
    with engine.connect() as held:
        held.exec_driver_sql("SELECT 1")
        oldest = system.read_system(engine, Settings(database_url=database)).oldest_transaction
    assert oldest is not None
    assert (oldest.application, oldest.state) == ("pin", "idle in transaction")
