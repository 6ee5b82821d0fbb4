"""The database stops and comes back: no attempt is spent, nobody has to help (A24)."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from dramatiq import Worker
from sqlalchemy import Engine

from actors import detach_broker, process
from actors.process import close_context, open_context
from db.connect import make_engine
from db.embedded.server import EmbeddedServer
from db.migrate import upgrade
from pin.clock import new_id
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions, WorkerOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from tests.acceptance.processes import open_folder
from tests.cases.fleet import Fleet
from tests.fake_selections import Call, FakeSelections, Gate, Script, detached
from tests.job.conftest import MakeJobSettings
from tests.job.scene import change, query, rows, stage
from tests.waiting import eventually

__all__ = ["open_folder"]

MakeFleet = Callable[..., Fleet]
MakeJob = Callable[[Settings], RetryJob]
PATIENT = {
    "PIN_RETRY__BACKOFF_BASE": "40s",
    "PIN_RETRY__BACKOFF_CAP": "40s",
    "PIN_QUEUE__LEASE": "32s",
    "PIN_WORKER__TIME_LIMIT": "28s",
}
"""A batch that waits longer for its database than the restart takes."""


@pytest.fixture
def own_server(open_folder: Path) -> Iterator[EmbeddedServer]:
    """A PostgreSQL that the test may stop."""
    with EmbeddedServer(open_folder / "postgres", durable=False) as running:
        running.create_database("pin")
        upgrade(running.url())
        yield running


@pytest.mark.case("A24")
@pytest.mark.req("J11", "J13", "J23", "G6")
@pytest.mark.parametrize("settings", [PATIENT, {}], ids=["within the batch's patience", "longer than that"])
def test_a_database_stopped_in_mid_batch_costs_no_attempt_and_the_next_tick_runs_unaided(
    own_server: EmbeddedServer, make_fleet: MakeFleet, selections: FakeSelections, settings: dict[str, str]
) -> None:
    away = Gate()
    selections.answer = lambda call: [away, *detached(call)]
    fleet = make_fleet(own_server.url(), selections.url, **settings, PIN_RETRY__DETACH_CALL_TIMEOUT="1.5s")
    engine = make_engine(own_server.url())
    entries = stage(engine, [new_id() for _ in range(20)])
    worker, scheduler = fleet.worker(), fleet.scheduler()
    selections.arrived(20)

    own_server.stop()
    away.open()
    worker.says("database away")
    if not settings:
        worker.says("message left to its lease")
        scheduler.says("run failed", times=2)
    own_server.start()

    eventually(lambda: {r.status for r in rows(engine, entries)} == {"Done"}, within=40)
    assert {r.attempts for r in rows(engine)} == {1}
    recorded = query(engine, "SELECT entry_id, attempt FROM news.snapshot_detach_attempt WHERE outcome = 'Succeeded'")
    assert sorted(r.entry_id for r in recorded) == sorted(entries)
    assert query(engine, "SELECT FROM dramatiq.queue WHERE state = 'rejected'") == []
    if settings:
        assert len(selections.calls) == 20, "the outcomes waited for the database"
    later = stage(engine, [new_id() for _ in range(5)])
    eventually(lambda: {(r.status, r.attempts) for r in rows(engine, later)} == {("Done", 1)}, within=20)
    assert (scheduler.returncode, worker.returncode) == (None, None)
    for each in (scheduler, worker):
        assert len(re.findall(r'^\{"|^\S+ \[', each.output(), re.MULTILINE)) < 200, "bounded reconnects and logs"
    engine.dispose()


@pytest.mark.case("A24")
@pytest.mark.req("G6", "J11")
def test_a_batch_whose_entries_cannot_be_read_is_left_to_its_lease_and_costs_no_attempt(
    engine: Engine,
    job_settings: MakeJobSettings,
    selections: FakeSelections,
    make_retry_job: Callable[[Settings], RetryJob],
) -> None:
    settings = job_settings(
        selections.url,
        retry=SnapshotDetachRetryOptions(
            batch_size=5, detach_call_timeout=timedelta(milliseconds=400), max_run_duration=timedelta(seconds=1)
        ),
        worker=WorkerOptions(time_limit=timedelta(seconds=1)),
        queue=QueueOptions(lease=timedelta(seconds=2), poll=timedelta(milliseconds=100)),
    )
    entries = stage(engine, [new_id() for _ in range(5)])
    opened = open_context(settings)
    away = make_engine("postgresql://pin@127.0.0.1:9/pin")
    process._context[:] = [replace(opened, engine=away)]
    detach_broker.configure(url=settings.database_url, lease=settings.queue.lease, poll=settings.queue.poll)
    worker: Any = Worker(detach_broker, worker_threads=1, worker_timeout=50)  # type: ignore[no-untyped-call]
    worker.start()
    try:
        retry_job.run(make_retry_job(settings), Event())
        kept = query(engine, "SELECT state::text AS state, deliveries FROM dramatiq.queue")
        assert [(r.state, r.deliveries) for r in kept] == [("consumed", 1)]
        process._context[:] = [opened]
        eventually(lambda: {r.status for r in rows(engine, entries)} == {"Done"}, within=15)
    finally:
        worker.stop(timeout=10_000)
        detach_broker.close()
        close_context()
        opened.engine.dispose()
        away.dispose()
    assert {r.attempts for r in rows(engine, entries)} == {1}
    assert len(selections.calls) == 5


@pytest.mark.case("A24")
@pytest.mark.req("G6", "J23")
def test_a_worker_whose_listening_backend_is_ended_listens_again_and_goes_on(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    fleet = make_fleet(database, selections.url)
    worker = fleet.worker()
    fleet.scheduler()
    listening = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'pin-worker-queue' AND datname = current_database()"
    )
    before = eventually(lambda: {r.pid for r in query(engine, listening)})

    change(engine, f"SELECT pg_terminate_backend(pid) FROM ({listening}) AS listeners")
    entries = stage(engine, [new_id() for _ in range(10)])

    eventually(lambda: {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}, within=20)
    after = {r.pid for r in query(engine, listening)}
    assert after
    assert not after & before
    assert len(after) <= len(before) + 1, "one connection a queue, and one for outcomes"
    assert worker.returncode is None


@pytest.mark.case("A24")
@pytest.mark.req("G6", "J13")
def test_every_session_of_a_worker_ended_in_mid_call_costs_no_attempt(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    gone = Gate()

    def hold(call: Call) -> Script:
        return [gone, *detached(call)]

    selections.answer = hold
    fleet = make_fleet(database, selections.url, **PATIENT)
    entries = stage(engine, [new_id() for _ in range(10)])
    fleet.worker()
    fleet.scheduler()
    selections.arrived(10)
    change(
        engine,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pin-%' AND datname = current_database() AND pid <> pg_backend_pid()",
    )
    gone.open()
    eventually(lambda: {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}, within=20)
    calls = Counter(call.path for call in selections.calls)
    assert set(calls.values()) == {1}
