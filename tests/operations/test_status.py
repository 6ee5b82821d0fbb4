"""What the first page is made of, read from a real database."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from db.runner.lock import runner_lock
from pin.clock import new_id, utc_now
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.operations.status import Status, read_status
from pin.operations.verdict import VerdictKind
from tests.job.scene import change, stage

RETRY, QUEUE = SnapshotDetachRetryOptions(), QueueOptions()


def read(engine: Engine, now: datetime) -> Status:
    return read_status(engine, now=now, retry=RETRY, queue=QUEUE)


def add_run(engine: Engine, result: str | None, started: datetime, **columns: Any) -> None:
    values = {"ended_at": started if result else None, "runner": "host:9", "halted_by": None} | columns
    change(
        engine,
        """INSERT INTO news.snapshot_detach_run (id, runner, started_at, ended_at, result, halted_by)
           VALUES (:id, :runner, :started, :ended_at, :result, :halted_by)""",
        id=new_id(),
        started=started,
        result=result,
        **values,
    )


def add_attempt(engine: Engine, entry: object, outcome: str, at: datetime, error: str | None = None) -> None:
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, outcome, error, duration_ms, worker, recorded_at)
           VALUES (:entry, 1, 1, :outcome, :error, 5, 'w', :at)""",
        entry=entry,
        outcome=outcome,
        error=error,
        at=at,
    )


@contextmanager
def holding(database: str) -> Iterator[None]:
    with runner_lock(database, timedelta(seconds=30)) as lock:
        assert lock is not None
        yield


@pytest.mark.req("J25", "J29")
def test_an_empty_database_has_no_runner_and_nothing_waits(engine: Engine) -> None:
    status = read(engine, utc_now())
    assert status.verdict.kind is VerdictKind.NO_RUNNER
    assert (status.pending, status.oldest_age, status.quarantined) == (0, timedelta(0), 0)
    assert (status.lock, status.next_tick, status.last_runs, status.answers) == (None, None, (), ())


@pytest.mark.req("J25", "J27", "J29")
def test_an_outage_is_told_with_its_error_and_the_figures(engine: Engine) -> None:
    now = utc_now()
    old, young = stage(engine, [new_id(), new_id()], now=now - timedelta(minutes=20), due=now + timedelta(minutes=4))
    stage(engine, [new_id()], now=now, due=now + timedelta(minutes=5), is_guard=True)
    change(
        engine,
        "UPDATE news.snapshot_detach_outbox SET last_error = 'HTTP 503', attempts = 3 WHERE id = ANY(:ids)",
        ids=[old, young],
    )
    add_run(engine, "Completed", now - timedelta(minutes=2))
    add_run(engine, "Skipped", now - timedelta(minutes=1))
    for minutes in (1, 3):
        add_attempt(engine, old, "Retried", now - timedelta(minutes=minutes), "HTTP 503")
    add_attempt(engine, young, "Succeeded", now - timedelta(minutes=30))

    status = read(engine, now)

    assert (status.verdict.kind, status.verdict.stuck_on) == (VerdictKind.STUCK, "HTTP 503")
    assert (status.pending, status.due, status.overdue, status.failed_recently) == (2, 0, 2, 2)
    assert status.oldest_age == timedelta(minutes=20)
    assert [(answer.error, answer.count) for answer in status.answers] == [("HTTP 503", 2), (None, 1)]
    assert [run.result for run in status.last_runs] == ["Skipped", "Completed"]
    assert status.next_tick == now + timedelta(minutes=4)
    assert status.last_success == now - timedelta(minutes=2)


@pytest.mark.req("J28", "J29")
def test_a_backlog_that_gets_through_drains(engine: Engine) -> None:
    now = utc_now()
    done, *_ = stage(engine, [new_id() for _ in range(3)], now=now - timedelta(minutes=20), due=now)
    change(engine, "UPDATE news.snapshot_detach_outbox SET status = 'Done' WHERE id = :id", id=done)
    add_run(engine, "Completed", now)
    add_attempt(engine, done, "Succeeded", now - timedelta(seconds=30))
    status = read(engine, now)
    assert (status.verdict.kind, status.delivered_last_minute) == (VerdictKind.DRAINING, 1)
    assert status.verdict.estimate == timedelta(minutes=2)


@pytest.mark.req("J2", "J29")
def test_the_locks_holder_is_named(engine: Engine, database: str) -> None:
    add_run(engine, None, utc_now())
    with holding(database):
        lock = read(engine, utc_now()).lock
        assert lock is not None
        assert (lock.application, lock.runner) == ("pin-runner-lock", "host:9")
        assert lock.held_seconds >= 0
    assert read(engine, utc_now()).lock is None
