"""The housekeeping of a run: stages of their own, after the claims (A43).

Each is bounded, passes over rows that others hold, and is contained: what goes wrong in one is logged and counted, ends
neither the run nor the stages after it, and is tried again by the next run.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine

from db.errors import describe, transact
from db.outbox import claim, outcome, requeue, runs
from db.outbox.outcome import AttemptOrigin, Decided
from db.outbox.runs import RunOutcomes
from db.runner.lock import LockLostError, RunnerLock
from pin.job import alerting, pruning
from pin.job.record import Announce, write_quarantined
from pin.rules.outbox import NOT_CALLED, Entry, Outcome, OutcomeKind
from pin.telemetry import metrics, traces
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

BUDGET = 5.0
"""Seconds that one stage may take before it leaves the rest to the next run."""
CHUNK = 500
"""Rows a transaction."""

_STAGES = ("spent", "plans", "alerts", "retention")
metrics.declare(metrics.STAGE_FAILURES, list(_STAGES))


@dataclass(frozen=True, slots=True)
class Housekeeping:
    """What the stages of one run need. `now` is the run's own reading of the clock (G25)."""

    run_id: UUID
    runner: str
    engine: Engine
    announce: Announce
    max_attempts: int
    due: datetime
    ages: pruning.Ages
    lease: timedelta
    """How long announced alerts belong to whoever takes their message."""
    now: Callable[[], datetime]


def housekeep(work: Housekeeping, lock: RunnerLock, spent: Sequence[UUID]) -> None:
    """All the stages. Raises LockLostError alone."""
    _contained("spent", lambda: _quarantine_spent(work, lock, spent))
    _contained("plans", lambda: _move_plans(work))
    announce_again(work)
    _contained("retention", lambda: _prune(work))


def announce_again(work: Housekeeping) -> None:
    """Alerts that are due are announced (J15); also while the job is paused (G27)."""
    _contained("alerts", lambda: _announce(work))


def _contained(name: str, stage: Callable[[], None]) -> None:
    try:
        stage()
    except LockLostError:
        raise
    except Exception as error:  # noqa: BLE001 - the one place where a stage's failure is contained, whatever it is
        metrics.STAGE_FAILURES.labels(name).inc()
        log.warning("stage failed", stage=name, error=describe(error))


def _quarantine_spent(work: Housekeeping, lock: RunnerLock, ids: Sequence[UUID]) -> None:
    """Rows whose attempts are spent leave Pending uncalled, under the lock (G7)."""
    for chunk in _within(BUDGET, [ids[at : at + CHUNK] for at in range(0, len(ids), CHUNK)]):
        now = work.now()
        with lock.transaction() as connection:
            found = claim.quarantine_spent(connection, chunk, due=work.due, now=now, max_attempts=work.max_attempts)
            decided = [_uncalled(entry, error) for entry, error in found]
            outcome.keep_history(
                connection, decided, AttemptOrigin(work.run_id, work.runner, traces.current_trace_id()), now
            )
            write_quarantined(connection, [(d.entry, d.outcome) for d in decided], now, work.lease, work.announce)
            runs.note(connection, work.run_id, RunOutcomes(quarantined=len(found)))
        for entry, error in found:
            metrics.QUARANTINED.inc()
            log.warning(
                "entry quarantined",
                snapshotId=str(entry.snapshot_id),
                reason=str(entry.reason),
                attempts=entry.attempts,
                errorCode=error,
            )


def _uncalled(entry: Entry, error: str) -> Decided:
    last = replace(entry, version=entry.version - 1)  # what was quarantined is the version of the last claim
    return Decided(last, entry, NOT_CALLED, Outcome(OutcomeKind.QUARANTINED, error))


def _move_plans(work: Housekeeping) -> None:
    """An operator's requeue goes on once its canary was delivered, and stops when one of it has failed again."""
    until = time.monotonic() + BUDGET
    while time.monotonic() < until:
        moved = transact(work.engine, lambda connection: requeue.advance(connection, work.now()))
        for plan_id, state in moved:
            log.info("requeue moved on", plan=str(plan_id), state=state.value)
        if not moved:
            return


def _announce(work: Housekeeping) -> None:
    def announce(connection: Connection) -> None:
        alerting.stage(connection, now=work.now(), lease=work.lease, announce=work.announce)

    transact(work.engine, announce)


def _prune(work: Housekeeping) -> None:
    pruning.stage(work.engine, work.ages, work.now, seconds=BUDGET)


def _within(seconds: float, chunks: Sequence[Sequence[UUID]]) -> Iterator[Sequence[UUID]]:
    until = time.monotonic() + seconds
    for chunk in chunks:
        if time.monotonic() >= until:
            return
        yield chunk
