"""A stop is no error: what is on the wire is finished or abandoned whole, nothing else starts (A16)."""

import signal
import time
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, text

from pin.clock import new_id
from tests.cases.fleet import Fleet
from tests.fake_selections import FakeSelections, Gate, detached
from tests.job.scene import history, query, row, rows, stage
from tests.waiting import eventually

MakeFleet = Callable[..., Fleet]
HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"
WAITING = (
    "SELECT FROM pg_stat_activity"
    " WHERE application_name = 'pin-worker' AND datname = current_database() AND wait_event_type = 'Lock'"
)
LONG = {
    "PIN_RETRY__DETACH_CALL_TIMEOUT": "10s",
    "PIN_RETRY__MAX_RUN_DURATION": "20s",
    "PIN_RETRY__LOCK_TTL": "30s",
    "PIN_RETRY__BATCH_SIZE": "4",
    "PIN_RETRY__BACKOFF_BASE": "60s",
    "PIN_RETRY__BACKOFF_CAP": "60s",
    "PIN_WORKER__CONCURRENCY": "2",
    "PIN_WORKER__TIME_LIMIT": "25s",
    "PIN_QUEUE__LEASE": "30s",
}
GRACE = 5.0


@pytest.mark.case("A16")
@pytest.mark.req("J6", "J23")
def test_before_the_claim_a_stop_leaves_everything_as_it_was(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    fleet = make_fleet(database, selections.url, **LONG)
    worker, scheduler = fleet.worker(), fleet.scheduler()
    scheduler.says("job completed")
    began = time.monotonic()
    for process in (scheduler, worker):
        process.send(signal.SIGTERM)
    assert [process.wait(10) for process in (scheduler, worker)] == [0, 0]
    assert time.monotonic() - began < GRACE + 3
    (entry,) = stage(engine, [new_id()])
    assert (row(engine, entry).attempts, row(engine, entry).version) == (0, 0)
    assert query(engine, HOLDERS) == []
    assert selections.calls == []


@pytest.mark.case("A16")
@pytest.mark.req("J6", "J13", "G6")
def test_during_the_call_what_is_on_the_wire_is_recorded_and_nothing_else_is_called(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    held = Gate()
    selections.answer = lambda call: [held, *detached(call)]
    fleet = make_fleet(database, selections.url, **LONG)
    entries = stage(engine, [new_id() for _ in range(4)])
    due = {r.id: r.next_attempt_at for r in rows(engine)}
    worker, scheduler = fleet.worker(), fleet.scheduler()
    selections.arrived(2)

    scheduler.send(signal.SIGTERM)
    assert scheduler.wait(10) == 0, "it does not wait for the workers"
    assert query(engine, HOLDERS) == []
    worker.send(signal.SIGTERM)
    worker.says("worker draining")
    held.open()

    assert worker.wait(GRACE + 5) == 0
    after = rows(engine, entries)
    assert sorted(r.status for r in after) == ["Done", "Done", "Pending", "Pending"]
    untouched = [r for r in after if r.status == "Pending"]
    assert {(r.attempts, r.version, r.last_error) for r in untouched} == {(0, 2, None)}, "given back (G22)"
    assert all(r.next_attempt_at == due[r.id] for r in untouched)
    assert len(selections.calls) == 2
    assert "Traceback" not in worker.output()


@pytest.mark.case("A16")
@pytest.mark.req("J6", "J13")
def test_between_reply_and_outcome_the_outcome_is_still_written(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    fleet = make_fleet(database, selections.url, **LONG)
    entries = stage(engine, [new_id() for _ in range(2)])
    held = Gate()
    selections.answer = lambda call: [held, *detached(call)]
    worker = fleet.worker()
    fleet.scheduler()
    selections.arrived(2)
    with engine.connect() as rival:
        rival.execute(text("SELECT FROM news.snapshot_detach_outbox FOR UPDATE"))
        held.open()
        eventually(lambda: query(engine, WAITING))
        worker.send(signal.SIGTERM)
        worker.says("worker draining")
        rival.rollback()
    assert worker.wait(GRACE + 5) == 0
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}
    assert query(engine, "SELECT FROM dramatiq.queue") == []


@pytest.mark.case("A16")
@pytest.mark.req("J6", "J11", "J23", "G6")
@pytest.mark.parametrize("how", ["SIGTERM twice", "SIGKILL"])
def test_ended_without_grace_the_batch_is_abandoned_whole_and_taken_up_under_the_same_attempt(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections, how: str
) -> None:
    held = Gate()
    selections.answer = lambda call: [held, *detached(call)]
    short = {"PIN_RETRY__DETACH_CALL_TIMEOUT": "1.5s", "PIN_WORKER__TIME_LIMIT": "2s", "PIN_QUEUE__LEASE": "3s"}
    fleet = make_fleet(database, selections.url, **(LONG | {"PIN_WORKER__CONCURRENCY": "4"} | short))
    entries = stage(engine, [new_id() for _ in range(3)])
    worker = fleet.worker()
    fleet.scheduler()
    selections.arrived(3)
    if how == "SIGKILL":
        worker.kill()
    else:
        worker.send(signal.SIGTERM)
        worker.says("worker draining")
        worker.send(signal.SIGTERM)
        worker.wait(GRACE + 5)
    abandoned = rows(engine, entries)
    if how == "SIGKILL":
        assert {(r.status, r.attempts, r.version, r.outcome_due) for r in abandoned} == {("Pending", 1, 1, True)}
        assert all(r.next_attempt_at > r.updated_at for r in abandoned), "due again by its schedule, not at once"
    assert len({(r.status, r.version) for r in abandoned}) == 1, "whole"

    selections.answer = detached
    held.open()
    fleet.worker()

    eventually(lambda: {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}, within=20)
    assert all(len(history(engine, e)) == 1 for e in entries)


@pytest.mark.case("A16")
@pytest.mark.req("J13", "G6", "G7")
def test_the_actors_time_limit_abandons_a_batch_whole(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    fleet = make_fleet(database, selections.url)
    entries = stage(engine, [new_id() for _ in range(5)])
    held = Gate()
    selections.answer = lambda call: [held, *detached(call)]
    worker = fleet.worker()
    fleet.scheduler()
    selections.arrived(5)
    with engine.connect() as rival:
        rival.execute(text("SELECT FROM news.snapshot_detach_outbox FOR UPDATE"))
        held.open()
        eventually(lambda: query(engine, WAITING))
        worker.says("Time limit exceeded|TimeLimitExceeded|Raising .*exception", within=15)
        rival.rollback()
    eventually(lambda: {r.status for r in rows(engine, entries)} == {"Done"}, within=20)
    attempts = {r.attempts for r in rows(engine)}
    assert len(attempts) == 1, "whole: all recorded or none"
    assert max(attempts) <= 2
    assert worker.returncode is None
