"""How the job stands now: the verdict and what it rests on (J25, J27, J29)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine

from db.outbox import alerts, runs
from db.outbox.runs import RunResult, RunRow
from db.runner import lock_holder, pause
from db.runner.lock_holder import LockHolder
from db.runner.pause import Pause
from db.views import standing
from db.views.standing import Answer, Batches
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.operations.verdict import WINDOW, Facts, Limits, Verdict, judge

LAST_RUNS = 10
LAST_ANSWERS = 100


@dataclass(frozen=True, slots=True)
class Status:
    """The job at the moment `at`. Counts are entries; `oldest_age` is zero when nothing waits."""

    at: datetime
    verdict: Verdict
    pending: int
    due: int
    overdue: int
    oldest_age: timedelta
    quarantined: int
    delivered_last_minute: int
    failed_recently: int
    """Failed attempts of the last five minutes."""
    age_limit: timedelta
    """Above it the oldest entry raises the alert."""
    lock: LockHolder | None
    next_tick: datetime | None
    """The last tick plus PollingInterval; in the past when it is late, None before the first."""
    last_success: datetime | None
    last_runs: tuple[RunRow, ...]
    answers: tuple[Answer, ...]
    """The target's last answers by error (None: success), the latest kind first."""
    pending_errors: tuple[Answer, ...]
    batches: Batches
    pause: Pause | None


def read_status(engine: Engine, *, now: datetime, retry: SnapshotDetachRetryOptions, queue: QueueOptions) -> Status:
    """The status at `now`, from one connection. Raises sqlalchemy errors when the database does not answer."""
    limits = Limits(retry.polling_interval, retry.lock_ttl, queue.lease, retry.batch_size)
    with engine.connect() as connection:
        waiting = standing.waiting(connection, now=now, overdue_before=now - limits.age)
        recent = standing.recent(connection, now=now, window=WINDOW, limit=limits.age)
        last_runs = runs.history(connection, limit=LAST_RUNS)
        unskipped = runs.history(connection, limit=2, skipped=False)
        facts = Facts(
            now=now,
            waiting=waiting,
            recent=recent,
            pending_errors=standing.pending_errors(connection, now=now),
            batches=standing.batches(connection, lease=queue.lease),
            last_tick=last_runs[0] if last_runs else None,
            last_run=next((run for run in unskipped if run.result not in {None, RunResult.PAUSED}), None),
            last_success=runs.last_success(connection),
            lock=lock_holder.holder(connection),
            pause=pause.read(connection),
            untold=alerts.counts(connection),
        )
        answers = standing.last_answers(connection, LAST_ANSWERS)
    return Status(
        at=now,
        verdict=judge(facts, limits),
        pending=waiting.pending,
        due=waiting.due,
        overdue=waiting.overdue,
        oldest_age=max(timedelta(0), now - waiting.oldest) if waiting.oldest else timedelta(0),
        quarantined=waiting.quarantined,
        delivered_last_minute=recent.delivered_last_minute,
        failed_recently=recent.failed,
        age_limit=limits.age,
        lock=facts.lock,
        next_tick=facts.last_tick.started_at + retry.polling_interval if facts.last_tick else None,
        last_success=facts.last_success,
        last_runs=tuple(last_runs),
        answers=tuple(answers),
        pending_errors=tuple(facts.pending_errors),
        batches=facts.batches,
        pause=facts.pause,
    )
