"""`SnapshotDetachRetryJob`: one tick. Take the runner lock, claim what is due in batches, hand each over (J1–J6, G6).

Claim and hand-over are one commit on the connection that holds the lock: a runner that has lost it cannot claim, and no
attempt is counted without its message.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db.outbox import claim, quarantine, requeue, runs
from db.outbox.claim import Pass
from db.outbox.runs import RunOutcomes, RunResult
from db.runner import pause
from db.runner.gate import BATCHES_CHANNEL, Gate, read_gate
from db.runner.lock import LockLostError, RunnerLock, runner_lock
from pin.clock import new_id, utc_now
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.job.delivery import Batch
from pin.job.record import Announce, write_quarantined
from pin.rules.outbox import Outcome, OutcomeKind, Policy
from pin.telemetry import metrics, traces
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.RUNS, [result.value for result in RunResult])

_WAKE = 0.5
"""Seconds between two looks at the gate where no notification comes: the longest a stop or a deadline goes unseen."""

Handover = Callable[[Connection, Batch], UUID]
"""Writes the batch's message into the caller's transaction; answers the message's id."""


@dataclass(frozen=True, slots=True)
class RetryJob:
    """What a tick needs. `lock_url` reaches the database directly (A12); `engine` serves what needs no lock."""

    lock_url: str
    engine: Engine
    options: SnapshotDetachRetryOptions
    queue: QueueOptions
    policy: Policy
    hand_over: Handover
    announce: Announce
    runner: str
    clock: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What one tick came to."""

    run_id: UUID
    result: RunResult
    claimed: int = 0
    outcomes: RunOutcomes = field(default_factory=lambda: RunOutcomes(0, 0, 0))


@dataclass(slots=True)
class _Run:
    """One tick under way."""

    id: UUID
    started: datetime
    deadline: float
    stopping: threading.Event
    messages: list[UUID] = field(default_factory=list)
    claimed: int = 0

    @property
    def over(self) -> bool:
        return self.stopping.is_set() or time.monotonic() >= self.deadline


def run(job: RetryJob, stopping: threading.Event) -> RunSummary:
    """One tick, from the lock to the summary row.

    A tick that meets the lock held elsewhere is skipped (J2). Never raises for a lost lock or a database error: those
    are results (LockLost, Failed), logged, and the next tick starts afresh (J23).
    """
    current = _Run(new_id(), job.clock(), time.monotonic() + job.options.max_run_duration.total_seconds(), stopping)
    began = time.monotonic()
    with (
        structlog.contextvars.bound_contextvars(jobRunId=str(current.id)),
        traces.span("snapshot detach run", attributes={"jobRunId": str(current.id)}),
    ):
        try:
            with runner_lock(job.lock_url, job.options.lock_ttl) as lock:
                result = _skip(job, current) if lock is None else _hold(job, lock, current)
        except LockLostError:
            log.warning("lock lost", claimed=current.claimed)
            result = RunResult.LOCK_LOST
        except DBAPIError as error:
            log.exception("run failed", error=type(error).__name__)
            result = RunResult.FAILED
        metrics.RUNS.labels(result.value).inc()
        outcomes = RunOutcomes(0, 0, 0) if result is RunResult.SKIPPED else _summarise(job, current, result)
        if result is not RunResult.SKIPPED:
            log.info(
                "job completed",
                result=result.value,
                claimed=current.claimed,
                succeeded=outcomes.succeeded,
                retried=outcomes.retried,
                quarantined=outcomes.quarantined,
                durationMs=int((time.monotonic() - began) * 1000),
            )
    return RunSummary(current.id, result, current.claimed, outcomes)


def _skip(job: RetryJob, current: _Run) -> RunResult:
    log.info("job skipped", runner=job.runner)
    with job.engine.begin() as connection:
        runs.skip(connection, run_id=current.id, runner=job.runner, now=current.started)
    return RunResult.SKIPPED


def _hold(job: RetryJob, lock: RunnerLock, current: _Run) -> RunResult:
    """The run proper, under the lock."""
    log.info("job started", runner=job.runner)
    with lock.transaction() as connection:
        runs.start(connection, run_id=current.id, runner=job.runner, now=current.started)
        if (paused := pause.read(connection)) is not None:
            log.info("job paused", since=paused.since.isoformat())
            return RunResult.PAUSED
    lock.listen(BATCHES_CHANNEL)
    _announce_again(job, lock, current)
    _requeue_rest(job, lock)
    _quarantine_spent(job, lock, current)
    result = _claim_batches(job, lock, current)
    if result is RunResult.STOPPED:
        return result
    return _await_outcomes(job, lock, current, result)


def _announce_again(job: RetryJob, lock: RunnerLock, current: _Run) -> None:
    """An alert whose message was lost is sent again, so that no quarantine stays silent (J15)."""
    with lock.transaction() as connection:
        silent = quarantine.silent_events(connection, before=current.started - job.options.polling_interval)
        if silent:
            job.announce(connection, silent)


def _requeue_rest(job: RetryJob, lock: RunnerLock) -> None:
    """An operator's re-enqueue goes on once its canary is Done, and stops when one of it has failed again."""
    with lock.transaction() as connection:
        moved = requeue.advance(connection, job.clock())
    for plan_id, state in moved:
        log.info("requeue moved on", plan=str(plan_id), state=state.value)


def _quarantine_spent(job: RetryJob, lock: RunnerLock, current: _Run) -> None:
    """Rows whose attempts are spent leave Pending uncalled, in transactions of their own before the claim (G7)."""
    size = job.options.batch_size
    while not current.over:
        now = job.clock()
        with lock.transaction() as connection:
            spent = claim.quarantine_spent(
                connection, due=current.started, now=now, size=size, max_attempts=job.policy.max_attempts
            )
            outcomes = [(entry, Outcome(OutcomeKind.QUARANTINED, error)) for entry, error in spent]
            write_quarantined(connection, outcomes, now, job.announce)
        for entry, error in spent:
            metrics.QUARANTINED.inc()
            log.warning(
                "entry quarantined", snapshotId=str(entry.snapshot_id), reason=str(entry.reason), errorCode=error
            )
        if len(spent) < size:
            return


def _claim_batches(job: RetryJob, lock: RunnerLock, current: _Run) -> RunResult:
    """Claim and hand over until nothing is due, the time is up, the pass is halted or the host stops (J5, G6)."""
    lone_first = False
    while not current.over:
        with lock.transaction() as connection:
            gate = _look(job, lock, connection, current)
            if gate.halted_by is not None:
                log.warning("pass halted", errorCode=gate.halted_by)
                return RunResult.HALTED
            if gate.paused:
                log.info("job paused", claimed=current.claimed)
                return RunResult.PAUSED
            open_ = gate.unconsumed == 0 and gate.in_flight < job.queue.max_batches_in_flight
            taken = _hand_over(job, connection, current, lone_first=lone_first) if open_ else None
        if taken is not None:
            if taken.claimed:
                current.claimed += len(taken.claimed)
                log.info("batch claimed", rows=len(taken.claimed))
                lone_first = not lone_first
            if taken.last:
                return RunResult.COMPLETED
        _wait(lock, current)  # what was just handed over lies unconsumed: a look before a notification is in vain
    return RunResult.STOPPED if current.stopping.is_set() else RunResult.OUT_OF_TIME


def _hand_over(job: RetryJob, connection: Connection, current: _Run, *, lone_first: bool) -> Pass:
    """Claim one batch and write its message, in this transaction.

    Rows whose outcome was lost go alone (G7) and take turns with full batches, so that neither starves the other.
    """
    taken = claim.claim_due(
        connection,
        due=current.started,
        now=job.clock(),
        size=job.options.batch_size,
        policy=job.policy,
        lone_first=lone_first,
    )
    if taken.claimed:
        current.messages.append(job.hand_over(connection, Batch(current.id, taken.claimed)))
    return taken


def _await_outcomes(job: RetryJob, lock: RunnerLock, current: _Run, result: RunResult) -> RunResult:
    """Wait for the run's own batches, up to its deadline; a run whose batches nobody consumes was held back (G20)."""
    if not current.messages and result is RunResult.COMPLETED:
        return result
    while True:
        over = current.over
        with lock.transaction() as connection:
            gate = _look(job, lock, connection, current)
        if current.stopping.is_set():
            return RunResult.STOPPED
        if over or gate.mine == 0:
            if gate.halted_by is not None:
                return RunResult.HALTED
            return RunResult.HELD_BACK if over and gate.unconsumed else result
        _wait(lock, current)


def _look(job: RetryJob, lock: RunnerLock, connection: Connection, current: _Run) -> Gate:
    """The gate, read by the very session that holds the lock."""
    gate = read_gate(connection, run_id=current.id, lease=job.queue.lease, mine=current.messages)
    if gate.backend_pid != lock.backend_pid:
        raise LockLostError
    return gate


def _wait(lock: RunnerLock, current: _Run) -> None:
    lock.wait(min(_WAKE, max(0.0, current.deadline - time.monotonic())))


def _summarise(job: RetryJob, current: _Run, result: RunResult) -> RunOutcomes:
    """Write the summary, not on the lock's connection: a lost lock still leaves one. A dead database leaves none."""
    try:
        with job.engine.begin() as connection:
            found = runs.outcomes(connection, current.id)
            runs.end(
                connection,
                run_id=current.id,
                result=result,
                batches=len(current.messages),
                claimed=current.claimed,
                found=found,
                now=job.clock(),
            )
    except DBAPIError as error:
        log.warning("run summary not written", error=type(error).__name__)
        return RunOutcomes(0, 0, 0)
    return found
