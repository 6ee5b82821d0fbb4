"""Pause, resume, the lock's holder, the ticks' list."""

from collections.abc import Callable
from datetime import timedelta
from threading import Event
from uuid import UUID

import pytest
from sqlalchemy import Engine

from db.outbox.runs import RunResult
from db.runner.lock import LockLostError, runner_lock
from pin.clock import new_id, utc_now
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations import audit, lock, pause, runs
from tests.job.conftest import MakeJobSettings
from tests.job.scene import active_snapshots, change, query, row, stage, working

MakeJob = Callable[[Settings], RetryJob]


@pytest.mark.req("J29")
def test_a_paused_job_claims_nothing_until_it_is_resumed(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    job = make_retry_job(settings := job_settings(selections_url))
    (entry,) = stage(engine, active_snapshots(engine))
    now = utc_now()
    made, first = pause.pause(engine, actor="ada", reason="deploy", now=now)
    again, second = pause.pause(engine, actor="bob", reason="other", now=now)
    assert (first, second, made, again) == (True, False, made, made)

    assert retry_job.run(job, Event()).result is RunResult.PAUSED
    assert row(engine, entry).version == 0

    ended = pause.resume(engine, actor="bob", reason="deployed", now=now)
    assert ended == made
    assert pause.resume(engine, actor="bob", reason="deployed", now=now) is None
    assert pause.read(engine) is None
    with working(settings):
        assert retry_job.run(job, Event()).outcomes.succeeded == 1
    assert [one.action for one in audit.list_audit(engine).rows] == ["resume", "pause"]
    assert [run.result for run in runs.list_runs(engine).runs] == ["Completed", "Paused"]


@pytest.mark.req("J29")
def test_a_pause_stops_a_run_between_two_batches(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    settings = job_settings(selections_url)
    retry = settings.retry.model_copy(update={"batch_size": 1, "detach_call_timeout": timedelta(seconds=5)})
    settings = settings.model_copy(update={"retry": retry})
    job = make_retry_job(settings)
    stage(engine, active_snapshots(engine, 5))

    def hand_over_and_pause(*arguments: object) -> UUID:
        pause.pause(engine, actor="ada", reason="too much", now=utc_now())
        return job.hand_over(*arguments)  # type: ignore[arg-type]

    pausing = RetryJob(**{name: getattr(job, name) for name in RetryJob.__slots__} | {"hand_over": hand_over_and_pause})
    with working(settings):
        summary = retry_job.run(pausing, Event())
    assert (summary.result, summary.claimed, summary.outcomes.succeeded) == (RunResult.PAUSED, 1, 1)


@pytest.mark.req("J29", "G21")
@pytest.mark.parametrize(("actor", "reason"), [("", "r"), ("a", " "), ("a", "x" * 513), ("a", "a\0b")])
def test_every_change_needs_an_actor_and_a_reason(engine: Engine, actor: str, reason: str) -> None:
    for change_it in (pause.pause, pause.resume):
        with pytest.raises(ValueError, match="reason"):
            change_it(engine, actor=actor, reason=reason, now=utc_now())
    with pytest.raises(ValueError, match="reason"):
        lock.release(engine, pid=1, actor=actor, reason=reason, now=utc_now())
    assert audit.list_audit(engine).rows == ()


@pytest.mark.req("J29", "G5")
@pytest.mark.case("A13")
def test_the_lock_is_taken_from_its_holder_alone(engine: Engine, database: str) -> None:
    now = utc_now()
    with runner_lock(database, timedelta(seconds=30)) as held:
        assert held is not None
        holder = lock.show(engine)
        assert holder is not None
        assert holder.pid == held.backend_pid
        (bystander,) = query(engine, "SELECT pg_backend_pid() AS pid")
        assert lock.release(engine, pid=bystander.pid, actor="ada", reason="hangs", now=now) is None
        assert lock.release(engine, pid=holder.pid, actor="ada", reason="hangs", now=now) is not None
        with pytest.raises(LockLostError), held.transaction() as connection:
            connection.exec_driver_sql("SELECT 1")
    assert lock.show(engine) is None
    (kept,) = audit.list_audit(engine).rows
    assert (kept.action, kept.details["pid"], kept.entry_id) == ("release-lock", holder.pid, None)


@pytest.mark.req("J29")
def test_ticks_are_listed_by_pages_and_shown_with_their_attempts(engine: Engine) -> None:
    now = utc_now()
    made = [new_id() for _ in range(5)]
    for number, run_id in enumerate(made):
        change(
            engine,
            "INSERT INTO news.snapshot_detach_run (id, runner, started_at, result) VALUES (:id, 'r', :at, :result)",
            id=run_id,
            at=now - timedelta(minutes=number // 2),
            result="Skipped" if number == 0 else "Completed",
        )
    seen: list[UUID] = []
    page = runs.list_runs(engine, limit=2)
    while True:
        seen += [run.id for run in page.runs]
        if page.next is None:
            break
        page = runs.list_runs(engine, limit=2, after=page.next)
    assert sorted(seen) == sorted(made)
    assert len(seen) == len(made)
    assert made[0] not in [run.id for run in runs.list_runs(engine, skipped=False).runs]
    change(
        engine,
        """INSERT INTO news.snapshot_detach_attempt
               (entry_id, entry_version, attempt, run_id, outcome, duration_ms, worker, recorded_at)
           VALUES (:entry, 1, 1, :run, 'Succeeded', 3, 'w', :now)""",
        entry=new_id(),
        run=made[1],
        now=now,
    )
    detail = runs.show_run(engine, made[1])
    assert detail is not None
    assert [attempt.outcome for attempt in detail.attempts] == ["Succeeded"]
    assert runs.show_run(engine, new_id()) is None
