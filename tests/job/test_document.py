"""The eight tests that the job's document asks for (J30)."""

import threading
from collections.abc import Callable
from datetime import timedelta
from threading import Event

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Engine
from structlog.testing import capture_logs

from db.outbox.runs import RunResult
from db.runner.lock import runner_lock
from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.delivery import Batch
from pin.job.tick import RetryJob, RunSummary
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, active_snapshots, change, history, query, row, rows, stage, working
from tests.waiting import eventually

Tick = Callable[[Settings], RunSummary]
MakeJob = Callable[[Settings], RetryJob]


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


@pytest.mark.req("J30.1", "J13", "C3", "C4", "J33")
def test_a_pending_entry_is_detached_and_done(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick
) -> None:
    snapshots = active_snapshots(engine, 3)
    entries = stage(engine, snapshots)
    succeeded = counted("news_snapshot_detach_succeeded_total")

    summary = tick(job_settings(selections_url))

    assert (summary.result, summary.claimed, summary.outcomes.succeeded) == (RunResult.COMPLETED, 3, 3)
    assert {(r.status, r.attempts, r.last_error, r.outcome_due) for r in rows(engine, entries)} == {
        ("Done", 1, None, False)
    }
    assert counted("news_snapshot_detach_succeeded_total") == succeeded + 3
    detached = query(engine, "SELECT status, detach_reason FROM selections.snapshot")
    assert set(map(tuple, detached)) == {("Detached", "BlockReplaced")}
    assert len(query(engine, "SELECT FROM selections.snapshot_detached_event")) == 3
    assert query(engine, "SELECT FROM dramatiq.queue") == []


@pytest.mark.req("J30.2", "J5", "J10", "G20")
def test_an_empty_run_succeeds_and_calls_nobody(engine: Engine, job_settings: MakeJobSettings, tick: Tick) -> None:
    not_due = stage(engine, [new_id()], due=utc_now() + timedelta(minutes=1))

    summary = tick(job_settings())

    assert (summary.result, summary.claimed) == (RunResult.COMPLETED, 0)
    assert row(engine, not_due[0]).version == 0
    assert query(engine, "SELECT FROM news.snapshot_detach_attempt") == []
    assert [r.result for r in query(engine, "SELECT result FROM news.snapshot_detach_run")] == ["Completed"]


@pytest.mark.req("J30.3", "J11", "J14", "G17")
def test_while_selections_is_away_the_entry_waits_for_its_backoff_and_the_next_run_repeats(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick
) -> None:
    (entry,) = stage(engine, active_snapshots(engine))
    before = utc_now()

    summary = tick(job_settings("http://127.0.0.1:9"))

    waiting = row(engine, entry)
    assert summary.outcomes.retried == 1
    assert (waiting.status, waiting.attempts, waiting.last_error) == ("Pending", 1, "NETWORK")
    delay = waiting.next_attempt_at - before
    assert timedelta(minutes=1) <= delay <= timedelta(minutes=1) * 1.1 + timedelta(seconds=5)

    assert tick(job_settings(selections_url)).claimed == 0, "its time has not come"
    change(engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :now", now=utc_now())
    tick(job_settings(selections_url))
    assert (row(engine, entry).status, row(engine, entry).attempts) == ("Done", 2)
    assert [h.outcome for h in history(engine, entry)] == ["Retried", "Succeeded"]


@pytest.mark.req("J30.4", "J23", "D7", "G4")
def test_a_snapshot_that_is_detached_already_makes_the_entry_done_without_effect(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick
) -> None:
    (snapshot,) = active_snapshots(engine)
    stage(engine, [snapshot])
    tick(job_settings(selections_url))
    first = query(engine, "SELECT * FROM selections.snapshot")
    (again,) = stage(engine, [snapshot])

    tick(job_settings(selections_url))

    assert row(engine, again).status == "Done"
    assert query(engine, "SELECT * FROM selections.snapshot") == first
    assert len(query(engine, "SELECT FROM selections.snapshot_detached_event")) == 1


@pytest.mark.req("J30.5", "J15", "G18")
def test_when_the_attempts_are_spent_the_entry_is_quarantined_with_its_event_and_alert(
    engine: Engine, job_settings: MakeJobSettings, tick: Tick
) -> None:
    (entry,) = stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 11, version = 11")
    quarantined = counted("news_snapshot_detach_quarantined_total")
    settings = job_settings()

    with capture_logs() as said, working(settings):
        tick_summary = _run(settings)
        eventually(
            lambda: query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at > '-infinity'")
        )

    poisoned = row(engine, entry)
    assert (poisoned.status, poisoned.attempts, poisoned.last_error) == ("Quarantined", 12, "NETWORK")
    assert tick_summary.outcomes.quarantined == 1
    assert counted("news_snapshot_detach_quarantined_total") == quarantined + 1
    (event,) = query(engine, "SELECT * FROM news.snapshot_detach_quarantined_event")
    assert (event.snapshot_id, event.post_id, event.reason, event.attempts) == (
        poisoned.snapshot_id,
        poisoned.post_id,
        "BlockReplaced",
        12,
    )
    assert [line["snapshotId"] for line in said if line["event"] == "SnapshotDetachQuarantinedEvent"] == [
        str(poisoned.snapshot_id)
    ]
    change(engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :now", now=utc_now())
    assert tick(settings).claimed == 0, "quarantined rows are never claimed"


@pytest.mark.req("J30.6", "J20", "J8")
def test_a_second_enqueue_of_a_snapshot_makes_no_second_active_row(engine: Engine) -> None:
    snapshot = new_id()
    stage(engine, [snapshot])
    stage(engine, [snapshot])
    assert len(rows(engine)) == 1


@pytest.mark.req("J30.7", "J2", "J4")
def test_of_parallel_instances_one_runs_and_claims_are_disjoint(
    engine: Engine, database: str, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    settings = job_settings()
    stage(engine, [new_id() for _ in range(5)])
    with runner_lock(database, timedelta(seconds=30)) as lock:
        assert lock is not None
        summary = retry_job.run(make_retry_job(settings), Event())
    assert (summary.result, summary.claimed) == (RunResult.SKIPPED, 0)
    assert {r.version for r in rows(engine)} == {0}

    with working(settings):
        barrier = threading.Barrier(3)
        results: list[RunSummary] = []

        def instance() -> None:
            job = make_retry_job(settings)
            barrier.wait(10)
            results.append(retry_job.run(job, Event()))

        threads = [threading.Thread(target=instance) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sum(s.claimed for s in results) == 5, "whoever ran after the first found nothing due"
    assert {r.attempts for r in rows(engine)} == {1}


@pytest.mark.req("J30.8", "J6")
def test_a_stop_between_entries_tears_no_claim_and_keeps_what_is_committed(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    retry = FAST["retry"].model_copy(update={"batch_size": 2})
    entries = stage(engine, [new_id() for _ in range(6)])
    stopping = Event()
    job = make_retry_job(job_settings(retry=retry))
    handed: list[int] = []

    def stop_after_first(connection: object, batch: Batch) -> object:
        handed.append(len(batch.claimed))
        stopping.set()
        return job.hand_over(connection, batch)  # type: ignore[arg-type]

    summary = retry_job.run(_replaced(job, hand_over=stop_after_first), stopping)

    assert (summary.result, summary.claimed, handed) == (RunResult.STOPPED, 2, [2])
    assert sorted(r.attempts for r in rows(engine, entries)) == [0, 0, 0, 0, 1, 1]
    assert len(query(engine, "SELECT FROM dramatiq.queue")) == 1, "what was claimed has its message"


def _run(settings: Settings) -> RunSummary:
    from scheduler import make_job

    job = make_job(settings)
    try:
        return retry_job.run(job, Event())
    finally:
        job.engine.dispose()


def _replaced(job: RetryJob, **changes: object) -> RetryJob:
    from dataclasses import replace

    return replace(job, **changes)  # type: ignore[arg-type]
