"""`SnapshotDetachRetryJob`: one tick. Take the runner lock, claim what is due in batches, hand each over (J1–J6, G6).

Claim and hand-over are one commit on the connection that holds the lock: a runner that has lost it cannot claim, and no
attempt is counted without its message. Claims come first, then the housekeeping (pin/job/stages.py), then the wait for
the outcomes. A run reads the wall clock once and adds monotonic time (G25).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db.errors import describe, is_victim, transact
from db.outbox import claim, runs
from db.outbox.claim import START, Claimed, Cursor, Pass, Terms
from db.outbox.runs import RunOutcomes, RunResult
from db.runner import pause
from db.runner.gate import BATCHES_CHANNEL, Gate, gate_values, read_gate
from db.runner.lock import LockLostError, RunnerLock, runner_lock
from pin.clock import new_id, utc_now
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.job.delivery import Batch
from pin.job.pruning import Ages
from pin.job.record import Announce
from pin.job.stages import Housekeeping, announce_again, housekeep
from pin.rules.outbox import Policy
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
    ages: Ages = field(default_factory=dict)
    """How long what is over is kept, by kind; nothing named is kept for ever."""
    clock: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What one tick came to."""

    run_id: UUID
    result: RunResult
    claimed: int = 0
    outcomes: RunOutcomes = field(default_factory=RunOutcomes)


@dataclass(slots=True)
class _Run:
    """One tick under way. `began` is monotonic; `started` the one reading of the wall clock."""

    id: UUID
    started: datetime
    began: float
    deadline: float
    stopping: threading.Event
    messages: list[UUID] = field(default_factory=list)
    claimed: int = 0
    cursor: Cursor = START
    exhausted: bool = False
    """The end of what is due was reached; what is left are the lone ones."""
    lost: deque[UUID] = field(default_factory=deque)
    spent: list[UUID] = field(default_factory=list)
    lone_turn: bool = False
    probing: bool = False
    """The pass before this one was halted: one batch at a time, until one was not."""

    @property
    def over(self) -> bool:
        return self.stopping.is_set() or time.monotonic() >= self.deadline

    def now(self) -> datetime:
        """The wall clock as it was at the start, and the time since: whatever has been done to the clock (G25)."""
        return self.started + timedelta(seconds=time.monotonic() - self.began)

    def turn(self) -> UUID | None:
        """The row that is to go alone now, None for a full batch: they take turns, whatever is due first (G24)."""
        return self.lost[0] if self.lost and (self.lone_turn or self.exhausted) else None


def run(job: RetryJob, stopping: threading.Event) -> RunSummary:
    """One tick, from the lock to the summary row.

    A tick that meets the lock held elsewhere is skipped (J2). Never raises for a lost lock or a database error: those
    are results (LockLost, Failed), logged, and the next tick starts afresh (J23).
    """
    began = time.monotonic()
    current = _Run(new_id(), job.clock(), began, began + job.options.max_run_duration.total_seconds(), stopping)
    correlation = {"jobRunId": str(current.id), "correlationId": str(current.id), "actor": "system"}
    with (
        structlog.contextvars.bound_contextvars(**correlation),
        traces.span("snapshot detach run", attributes=correlation),
    ):
        try:
            with runner_lock(job.lock_url, job.options.lock_ttl) as lock:
                result = _skip(job, current) if lock is None else _hold(job, lock, current)
        except LockLostError:
            log.warning("lock lost", claimed=current.claimed)
            result = RunResult.LOCK_LOST
        except DBAPIError as error:
            log.exception("run failed", error=describe(error))
            result = RunResult.FAILED
        metrics.RUNS.labels(result.value).inc()
        outcomes = RunOutcomes() if result is RunResult.SKIPPED else _summarise(job, current, result)
        if result is not RunResult.SKIPPED:
            log.info(
                "job completed",
                result=result.value,
                claimed=current.claimed,
                succeeded=outcomes.succeeded,
                retried=outcomes.retried,
                quarantined=outcomes.quarantined,
                notCalled=outcomes.not_called,
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
        current.probing = runs.last_result(connection) is RunResult.HALTED
        runs.start(connection, run_id=current.id, runner=job.runner, now=current.started)
    lock.listen(BATCHES_CHANNEL)
    result = _claim_batches(job, lock, current)
    work = _housekeeping(job, current)
    if result is RunResult.PAUSED:
        announce_again(work)
    elif result is not RunResult.STOPPED:
        housekeep(work, lock, current.spent)
    if result is RunResult.STOPPED:
        return result
    return _await_outcomes(job, lock, current, result)


def _housekeeping(job: RetryJob, current: _Run) -> Housekeeping:
    return Housekeeping(
        run_id=current.id,
        runner=job.runner,
        engine=job.engine,
        announce=job.announce,
        max_attempts=job.policy.max_attempts,
        due=current.started,
        ages=job.ages,
        lease=job.policy.backoff_base,
        now=current.now,
    )


def _claim_batches(job: RetryJob, lock: RunnerLock, current: _Run) -> RunResult:
    """Claim and hand over until nothing is due, the time is up, the pass is halted or the host stops (J5, G6)."""
    while not current.over:
        taken = _claim(job, lock, current)
        if taken.gate.halted_by is not None:
            log.warning("pass halted", errorCode=taken.gate.halted_by)
            return RunResult.HALTED
        if taken.gate.paused:
            log.info("job paused", claimed=current.claimed)
            return RunResult.PAUSED
        if taken.open and current.exhausted and not current.lost:
            return RunResult.COMPLETED
        if taken.claimed or not taken.open:
            _wait(lock, current)  # what was just handed over lies unconsumed: a look before a notification is in vain
    return RunResult.STOPPED if current.stopping.is_set() else RunResult.OUT_OF_TIME


def _claim(job: RetryJob, lock: RunnerLock, current: _Run) -> Pass:
    """One claim with its message, one commit; tried again when it was the victim of others."""
    lone = current.turn()
    while True:
        try:
            with lock.transaction() as connection:
                pause.share_claims(connection)
                taken = _take(job, lock, connection, current, lone)
                message = _hand_over(job, connection, current, taken.claimed)
            break
        except DBAPIError as error:
            if current.over or not is_victim(error):
                raise
    if not taken.open:
        return taken
    if message is not None:
        current.messages.append(message)
        current.claimed += len(taken.claimed)
        log.info("batch claimed", rows=len(taken.claimed))
    if lone is not None:
        current.lost.popleft()
    else:
        current.cursor, current.exhausted = taken.cursor, taken.last
        current.lost.extend(taken.lost)
        current.spent.extend(taken.spent)
    current.lone_turn = lone is None
    return taken


def _take(job: RetryJob, lock: RunnerLock, connection: Connection, current: _Run, lone: UUID | None) -> Pass:
    terms = Terms(
        gate=gate_values(run_id=current.id, lease=job.queue.lease, mine=current.messages),
        backend_pid=lock.backend_pid,
        due=current.started,
        policy=job.policy,
        most=job.queue.max_batches_in_flight,
        alone=current.probing and len(current.messages) == 1,
    )
    now = current.now()
    if lone is not None:
        taken = claim.claim_lost(connection, terms, entry_id=lone, now=now)
    else:
        taken = claim.claim_due(connection, terms, after=current.cursor, size=job.options.batch_size, now=now)
    if taken.gate.backend_pid != lock.backend_pid:
        raise LockLostError
    return taken


def _hand_over(job: RetryJob, connection: Connection, current: _Run, claimed: tuple[Claimed, ...]) -> UUID | None:
    return job.hand_over(connection, Batch(current.id, claimed)) if claimed else None


def _await_outcomes(job: RetryJob, lock: RunnerLock, current: _Run, result: RunResult) -> RunResult:
    """Wait for the run's own batches, up to its deadline; a run whose batches nobody consumes was held back (G20)."""
    if not current.messages and result in {RunResult.COMPLETED, RunResult.PAUSED}:
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
        return transact(
            job.engine,
            lambda connection: runs.end(
                connection,
                run_id=current.id,
                result=result,
                batches=len(current.messages),
                claimed=current.claimed,
                now=current.now(),
            ),
        )
    except DBAPIError as error:
        log.warning("run summary not written", error=describe(error))
        return RunOutcomes()
