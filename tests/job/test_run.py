"""A run: passes, backpressure, what ends it, and what it leaves behind."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, Engine

from actors import detach_broker
from db.outbox.runs import RunResult
from pin.clock import new_id, utc_now
from pin.config.sections import QueueOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.delivery import Batch
from pin.job.tick import RetryJob, RunSummary
from tests.fake_selections import Call, Close, FakeSelections, Gate, Script, detached, problem
from tests.job.conftest import MakeJobSettings
from tests.job.scene import FAST, active_snapshots, change, history, query, row, rows, stage, working
from tests.waiting import eventually

Tick = Callable[[Settings], RunSummary]
MakeJob = Callable[[Settings], RetryJob]


SESSIONS = """
    SELECT application_name, state, xact_start FROM pg_stat_activity
    WHERE application_name LIKE 'pin-%' AND datname = current_database()
"""


def retry(**changed: Any) -> Any:
    return FAST["retry"].model_copy(update=changed)


@pytest.mark.req("J5", "G6")
def test_a_run_repeats_full_batches_until_nothing_is_due(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick
) -> None:
    entries = stage(engine, active_snapshots(engine, 25))
    summary = tick(job_settings(selections_url, retry=retry(batch_size=10)))
    assert (summary.result, summary.claimed, summary.outcomes.succeeded) == (RunResult.COMPLETED, 25, 25)
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 1)}
    (run,) = query(engine, "SELECT * FROM news.snapshot_detach_run")
    assert (run.batches, run.claimed, run.succeeded, run.retried, run.quarantined) == (3, 25, 25, 0, 0)
    assert run.ended_at >= run.started_at


@pytest.mark.req("J5", "G6", "G20")
def test_without_workers_one_batch_is_claimed_however_long_they_stay_away(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id() for _ in range(30)])
    job = make_retry_job(job_settings(retry=retry(batch_size=10, max_run_duration=timedelta(milliseconds=700))))
    results = [retry_job.run(job, Event()) for _ in range(3)]
    assert [(s.result, s.claimed) for s in results] == [
        (RunResult.HELD_BACK, 10),
        (RunResult.HELD_BACK, 0),
        (RunResult.HELD_BACK, 0),
    ]
    assert sorted({r.attempts for r in rows(engine)}) == [0, 1]
    assert len(query(engine, "SELECT FROM dramatiq.queue")) == 1


@pytest.mark.req("G6")
def test_nothing_is_claimed_while_a_consumed_batch_has_outlived_its_lease(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id() for _ in range(2)])
    settings = job_settings(
        retry=retry(batch_size=1, max_run_duration=timedelta(milliseconds=500)),
        queue=QueueOptions(lease=timedelta(seconds=20), max_batches_in_flight=2),
    )
    job = make_retry_job(settings)
    retry_job.run(job, Event())
    change(engine, "UPDATE dramatiq.queue SET state = 'consumed', mtime = now() - interval '1 hour'")
    assert retry_job.run(job, Event()).claimed == 0
    change(engine, "UPDATE dramatiq.queue SET mtime = now()")  # alive again: consumed, and within its lease
    assert retry_job.run(job, Event()).claimed == 1


@pytest.mark.req("G6")
def test_no_more_batches_are_in_flight_than_configured(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id() for _ in range(5)])
    settings = job_settings(
        retry=retry(batch_size=1, max_run_duration=timedelta(seconds=1)), queue=QueueOptions(max_batches_in_flight=2)
    )
    job = make_retry_job(settings)

    def consumed_at_once(connection: Connection, batch: Batch) -> Any:
        message = job.hand_over(connection, batch)
        connection.exec_driver_sql("UPDATE dramatiq.queue SET state = 'consumed', mtime = clock_timestamp()")
        return message

    summary = retry_job.run(replace(job, hand_over=consumed_at_once), Event())
    assert (summary.claimed, summary.result) == (2, RunResult.OUT_OF_TIME)


@pytest.mark.req("G6")
@pytest.mark.parametrize(("ceiling", "batches"), [(5, 1), (11, 2), (400, 5)])
def test_the_fleets_ceiling_of_calls_bounds_the_batches_in_flight(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, ceiling: int, batches: int
) -> None:
    stage(engine, [new_id() for _ in range(25)])
    settings = job_settings(
        retry=retry(batch_size=5, max_run_duration=timedelta(seconds=1)),
        queue=QueueOptions(max_calls_in_flight=ceiling),
    )
    job = make_retry_job(settings)

    def consumed_at_once(connection: Connection, batch: Batch) -> Any:
        message = job.hand_over(connection, batch)
        connection.exec_driver_sql("UPDATE dramatiq.queue SET state = 'consumed', mtime = clock_timestamp()")
        connection.exec_driver_sql("SELECT pg_notify('pin.batches', '')")
        return message

    assert retry_job.run(replace(job, hand_over=consumed_at_once), Event()).claimed == 5 * batches


@pytest.mark.req("J12", "J13")
@pytest.mark.case("A5")
def test_while_a_batch_is_on_the_wire_no_session_is_idle_in_a_transaction(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    arrived, release = Event(), Gate()
    (entry,) = stage(engine, [new_id()])
    with FakeSelections() as selections:

        def hold(_call: Call) -> Script:
            arrived.set()
            return [release, Close()]

        selections.answer = hold
        settings = job_settings(selections.url)
        with working(settings):
            runner = threading.Thread(target=retry_job.run, args=(make_retry_job(settings), Event()))
            runner.start()
            assert arrived.wait(10)
            sessions = query(engine, SESSIONS)
            # The runner's own short transactions come and go; one that is held for the call would stay for all of it.
            eventually(lambda: [s for s in query(engine, SESSIONS) if s.xact_start is not None] == [])
            release.open()
            runner.join(20)
    assert {s.application_name for s in sessions} >= {"pin-worker", "pin-runner-lock", "pin-worker-queue"}
    assert row(engine, entry).last_error is not None


@pytest.mark.req("G7", "J11", "J23")
def test_a_lost_outcome_is_followed_by_a_call_of_its_own_after_the_backoff(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, active_snapshots(engine, 3))
    settings = job_settings(selections_url, retry=retry(max_run_duration=timedelta(milliseconds=300)))
    retry_job.run(make_retry_job(settings), Event())
    change(engine, "DELETE FROM dramatiq.queue")  # as if a worker had taken the message and died with it
    assert tick(settings).claimed == 0, "not before the backoff is over"
    change(engine, "UPDATE news.snapshot_detach_outbox SET next_attempt_at = :now", now=utc_now())

    summary = tick(job_settings(selections_url))

    assert summary.claimed == 3
    assert (
        query(engine, "SELECT batches FROM news.snapshot_detach_run WHERE id = :id", id=summary.run_id)[0].batches == 3
    )
    assert {(r.status, r.attempts) for r in rows(engine, entries)} == {("Done", 2)}


@pytest.mark.req("G3", "J14")
def test_a_refused_credential_ends_the_pass_and_leaves_the_rest_as_they_were(
    engine: Engine, job_settings: MakeJobSettings, tick: Tick
) -> None:
    stage(engine, [new_id() for _ in range(30)])
    with FakeSelections() as selections:
        selections.answer = lambda _call: problem(401, "UNAUTHORIZED")
        one_at_a_time = FAST["queue"].model_copy(update={"max_batches_in_flight": 1})
        summary = tick(job_settings(selections.url, retry=retry(batch_size=10), queue=one_at_a_time))
    assert summary.result is RunResult.HALTED
    assert summary.claimed < 30
    assert {r.status for r in rows(engine)} == {"Pending"}
    assert query(engine, "SELECT halted_by FROM news.snapshot_detach_run")[0].halted_by == "HTTP 401"


@pytest.mark.req("J6")
def test_a_draining_worker_starts_no_call_and_what_it_did_not_call_keeps_attempt_and_due_time(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    entries = stage(engine, [new_id() for _ in range(50)])
    due = {r.id: r.next_attempt_at for r in rows(engine)}
    arrived, release = threading.Semaphore(0), Gate()
    with FakeSelections() as selections:

        def hold(call: Call) -> Script:
            arrived.release()
            return [release, *detached(call)]

        selections.answer = hold
        twenty = FAST["worker"].model_copy(update={"concurrency": 20})
        settings = job_settings(selections.url, retry=retry(detach_call_timeout=timedelta(seconds=5)), worker=twenty)
        with working(settings):
            runner = threading.Thread(target=retry_job.run, args=(make_retry_job(settings), Event()))
            runner.start()
            for _ in range(20):  # the calls of the batch that go side by side
                assert arrived.acquire(timeout=10)
            detach_broker.draining.set()
            release.open()
            eventually(lambda: query(engine, "SELECT FROM dramatiq.queue") == [])
            runner.join(30)
    after = rows(engine, entries)
    assert sorted({r.status for r in after}) == ["Done", "Pending"]
    assert sum(r.status == "Done" for r in after) == 20 == len(selections.calls)
    untouched = [r for r in after if r.status == "Pending"]
    assert {(r.attempts, r.version, r.outcome_due, r.last_error) for r in untouched} == {(0, 2, False, None)}
    assert all(r.next_attempt_at == due[r.id] for r in untouched)
    assert {tuple(one.outcome for one in history(engine, r.id)) for r in untouched} == {("NotCalled",)}


def _lines(rendered: str) -> list[dict[str, Any]]:
    """The events of a record that holds many, one JSON object a line."""
    return [json.loads(line) for line in rendered.splitlines() if line.startswith("{")]


@pytest.mark.req("J31", "J26", "J24")
def test_the_run_is_the_correlation_of_its_messages_logs_and_history(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick, caplog: pytest.LogCaptureFixture
) -> None:
    (entry,) = stage(engine, active_snapshots(engine))
    caplog.set_level("INFO")
    summary = tick(job_settings(selections_url))
    (attempt,) = history(engine, entry)
    assert attempt.run_id == summary.run_id
    said = [[r.msg] if isinstance(r.msg, dict) else _lines(r.msg) for r in caplog.records]
    events = {line["event"]: line for lines in said for line in lines}
    assert {"job started", "batch claimed", "entry detached", "job completed"} <= set(events)
    assert {e["jobRunId"] for name, e in events.items() if name != "worker started" and "jobRunId" in e} == {
        str(summary.run_id)
    }
    assert events["entry detached"]["actor"] == "system"
    assert events["entry detached"]["correlationId"] == str(summary.run_id)


@pytest.mark.req("J16", "G5", "J23")
def test_a_run_that_loses_the_lock_claims_nothing_more_and_says_so(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id() for _ in range(20)])
    job = make_retry_job(job_settings(retry=retry(batch_size=5)))

    def hand_over_and_cut(connection: Connection, batch: Batch) -> Any:
        message = job.hand_over(connection, batch)
        (pid,) = connection.exec_driver_sql("SELECT pg_backend_pid()").one()
        change(engine, "SELECT pg_terminate_backend(:pid)", pid=pid)
        return message

    summary = retry_job.run(replace(job, hand_over=hand_over_and_cut), Event())

    assert summary.result is RunResult.LOCK_LOST
    assert {r.version for r in rows(engine)} == {0}, "the claim went with its transaction"
    assert query(engine, "SELECT FROM dramatiq.queue") == []
    assert query(engine, "SELECT result FROM news.snapshot_detach_run")[0].result == "LockLost"


@pytest.mark.req("J15", "G21")
def test_an_alert_whose_message_was_lost_is_sent_again(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13")
    settings = job_settings()
    retry_job.run(make_retry_job(settings), Event())
    (message,) = query(engine, "SELECT queue_name FROM dramatiq.queue")
    assert message.queue_name == "snapshot-detach-alert"
    change(engine, "DELETE FROM dramatiq.queue")
    change(engine, "UPDATE news.snapshot_detach_alert SET next_try_at = next_try_at - interval '1 hour'")
    with working(settings):
        retry_job.run(make_retry_job(settings), Event())
        eventually(
            lambda: query(engine, "SELECT FROM news.snapshot_detach_quarantined_event WHERE alerted_at > '-infinity'")
        )


@pytest.mark.req("G21", "G6")
def test_alerts_that_wait_for_a_worker_do_not_hold_back_the_runner(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id()])
    change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13")
    stage(engine, [new_id()])
    job = make_retry_job(job_settings(retry=retry(max_run_duration=timedelta(milliseconds=500))))
    assert retry_job.run(job, Event()).claimed == 1


@pytest.mark.req("J5")
def test_a_run_ends_by_its_deadline_and_leaves_the_rest_to_the_next(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob
) -> None:
    stage(engine, [new_id() for _ in range(4)])
    job = make_retry_job(job_settings(retry=retry(batch_size=1, max_run_duration=timedelta(milliseconds=400))))
    began = time.monotonic()
    retry_job.run(job, Event())
    assert time.monotonic() - began < 5
    assert query(engine, "SELECT FROM news.snapshot_detach_outbox WHERE attempts = 0")


@pytest.mark.req("G13", "D17", "J33")
def test_a_guard_that_fires_detaches_the_orphan_or_leaves_a_tombstone(
    engine: Engine, selections_url: str, job_settings: MakeJobSettings, tick: Tick
) -> None:
    (orphan,), never_made = active_snapshots(engine), new_id()
    entries = stage(engine, [orphan, never_made], is_guard=True)
    tick(job_settings(selections_url))
    assert {r.status for r in rows(engine, entries)} == {"Done"}
    found = {r.id: r.status for r in query(engine, "SELECT id, status FROM selections.snapshot")}
    assert found == {orphan: "Detached", never_made: "Tombstone"}
    assert query(engine, "SELECT FROM news.snapshot_detach_quarantined_event") == []
