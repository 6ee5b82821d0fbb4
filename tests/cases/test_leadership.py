"""Stale leadership: a runner that has lost the lock claims nothing, and no row is attempted twice for it (A13)."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event

import pytest
from sqlalchemy import Engine

from db.outbox.runs import RunResult
from pin.clock import new_id
from pin.config.sections import QueueOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob, RunSummary
from tests.cases.fleet import Fleet, Process
from tests.fake_selections import Call, FakeSelections, Gate, Script, detached, problem
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, change, query, rows, stage, working
from tests.waiting import eventually

MakeJob = Callable[[Settings], RetryJob]
MakeFleet = Callable[..., Fleet]
HOLDERS = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted"


@contextmanager
def continued(process: Process) -> Iterator[None]:
    """Stopped by SIGSTOP while the block lasts."""
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


@pytest.mark.case("A13")
@pytest.mark.req("J2", "G5", "G6", "J16")
def test_a_lock_ended_after_the_second_of_ten_rows_is_noticed_before_the_next_claim(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections: FakeSelections
) -> None:
    held = Gate()
    selections.answer = lambda call: [held, *detached(call)]
    settings = job_settings(
        selections.url,
        retry=FAST["retry"].model_copy(update={"batch_size": 1, "detach_call_timeout": timedelta(seconds=5)}),
        queue=QueueOptions(lease=timedelta(seconds=20), poll=timedelta(milliseconds=200), max_batches_in_flight=2),
    )
    entries = stage(engine, [new_id() for _ in range(10)])
    job = make_retry_job(settings)
    first: list[RunSummary] = []
    with working(settings):
        runner = threading.Thread(target=lambda: first.append(retry_job.run(job, Event())))
        runner.start()
        selections.arrived(2)
        change(engine, f"SELECT pg_terminate_backend(pid) FROM ({HOLDERS}) AS holders")
        runner.join(10)
        assert not runner.is_alive()
        assert [(run.result, run.claimed) for run in first] == [(RunResult.LOCK_LOST, 2)]
        assert sorted(r.attempts for r in rows(engine)) == [0] * 8 + [1] * 2
        held.open()
        eventually(lambda: sum(r.status == "Done" for r in rows(engine)) == 2)

        second = retry_job.run(job, Event())

    assert (second.result, second.claimed) == (RunResult.COMPLETED, 8)
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}
    assert set(Counter(call.path for call in selections.calls).values()) == {1}


@pytest.mark.case("A13")
@pytest.mark.req("J2", "J3", "J4", "J16", "G5")
def test_of_three_schedulers_the_holder_is_stopped_past_its_ttl_and_no_row_is_attempted_twice_for_it(
    database: str, engine: Engine, make_fleet: MakeFleet, selections: FakeSelections
) -> None:
    held, refused = Gate(), set[str]()

    def answer(call: Call) -> Script:
        if call.path in refused:
            return detached(call)
        refused.add(call.path)
        return [held, *problem(503, "UNAVAILABLE")]

    selections.answer = answer
    fleet = make_fleet(database, selections.url, PIN_RETRY__BATCH_SIZE="5", PIN_RETRY__DETACH_CALL_TIMEOUT="1.5s")
    fleet.worker()
    schedulers = [fleet.scheduler() for _ in range(3)]
    # Stopped while it holds the lock: with calls on the wire that are not answered yet.
    entries = stage(engine, [new_id() for _ in range(10)])
    selections.arrived(5)
    (holder,) = query(engine, "SELECT id, runner FROM news.snapshot_detach_run WHERE result IS NULL")
    stopped = next(each for each in schedulers if holder.runner.endswith(f":{each.pid}"))

    with continued(stopped):
        eventually(
            lambda: query(
                engine,
                "SELECT FROM news.snapshot_detach_run WHERE result <> 'Skipped' AND claimed > 0"
                " AND started_at > (SELECT started_at FROM news.snapshot_detach_run WHERE id = :held)",
                held=holder.id,
            ),
            within=20,
        )
        held.open()
    stopped.says("lock lost")
    eventually(lambda: {r.status for r in rows(engine, entries)} == {"Done"}, within=30)

    claims = query(
        engine,
        "SELECT entry_id, count(*) AS attempts, max(recorded_at) - min(recorded_at) AS apart"
        " FROM news.snapshot_detach_attempt GROUP BY entry_id",
    )
    attempts = {r.id: r.attempts for r in rows(engine)}
    assert {c.entry_id: c.attempts for c in claims} == attempts, "each attempt has its row, and none has two"
    assert set(attempts.values()) == {2}
    assert min(c.apart for c in claims) > timedelta(seconds=3), "the second came by the backoff, not by the failover"
    assert set(Counter(call.path for call in selections.calls).values()) == {2}
    assert all(each.returncode is None for each in schedulers)
    eventually(lambda: query(engine, f"SELECT count(*) AS n FROM ({HOLDERS}) AS h")[0].n <= 1)
