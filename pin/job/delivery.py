"""Delivery: call selections for what is still claimed, have each reply decided on and recorded (J12, J19, G6).

Retrieve, decide, store are three things. No database connection is held while a call is on the wire (J12).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import backoff
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db.errors import is_away
from db.outbox import outcome
from db.outbox.claim import Claimed
from db.outbox.outcome import Answered, AttemptOrigin, Decided
from pin.clock import utc_now
from pin.config.sections import SnapshotDetachRetryOptions
from pin.job.observe import observe_attempts, observe_done
from pin.job.record import Announce, record
from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient, never
from pin.rules.outbox import Entry, OutcomeKind, Policy, Reply
from pin.telemetry import metrics, traces
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

_Done = TypeVar("_Done")


def policy_of(options: SnapshotDetachRetryOptions) -> Policy:
    """The retry schedule that the options describe."""
    return Policy(options.max_attempts, options.backoff_base, options.backoff_factor, options.backoff_cap)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message hands over (G6)."""

    run_id: UUID
    claimed: tuple[Claimed, ...]


def deliver(
    batch: Batch,
    *,
    engine: Engine,
    client: SelectionsClient,
    policy: Policy,
    call_timeout: timedelta,
    time_limit: timedelta,
    patience: timedelta,
    announce: Announce,
    stopping: Callable[[], bool],
    worker: str,
    clock: Callable[[], datetime] = utc_now,
) -> list[Decided]:
    """Deliver one batch: one read, the calls, one short transaction of outcomes.

    Entries no longer Pending at the version the message names are skipped (G6). Once `stopping()` holds, no call is
    started; the calls on the wire finish and are recorded, the rest keep their attempt and due time (J6).

    `time_limit` is for reading and calling; a database that is away is waited for up to `patience` before the calls,
    which is part of it, and up to `patience` after it (A24). Raises sqlalchemy.exc.DBAPIError when the database is
    still away then (`db.errors.is_away`): the batch may be delivered again.
    """
    started = time.monotonic()
    deadline = started + time_limit.total_seconds()
    wait = patience.total_seconds()

    def read() -> list[Entry]:
        with engine.connect() as connection:
            return outcome.still_claimed(connection, batch.claimed)

    entries = _while_away(read, until=started + wait)
    replies = _call(entries, client, call_timeout=call_timeout, deadline=deadline, stopping=stopping)
    answered = [Answered(entry, reply) for entry, reply in zip(entries, replies, strict=True) if reply is not None]
    origin = AttemptOrigin(batch.run_id, worker, traces.current_trace_id())
    decided = _while_away(
        lambda: record(engine, answered, origin=origin, policy=policy, now=clock(), announce=announce),
        until=deadline + wait,
    )
    observe_attempts(decided, clock())
    return decided


def first_attempts(
    entries: Sequence[Entry],
    *,
    engine: Engine,
    client: SelectionsClient,
    policy: Policy,
    call_timeout: timedelta,
    deadline: float,
    clock: Callable[[], datetime] = utc_now,
    worker: str = "web",
) -> None:
    """The owner's own first calls, after commit, best effort, all of them by the monotonic `deadline` (J19, G8).

    A failure is written to last_error and the history and changes nothing else. What cannot be recorded is the job's:
    database errors are logged, not raised.
    """
    if not entries:
        return
    replies = _call(entries, client, call_timeout=call_timeout, deadline=deadline, stopping=never)
    answered = [Answered(entry, reply) for entry, reply in zip(entries, replies, strict=True) if reply is not None]
    origin = AttemptOrigin(None, worker, traces.current_trace_id())
    try:
        decided = record(engine, answered, origin=origin, policy=policy, now=clock(), announce=_nothing_to_announce)
    except DBAPIError as error:
        log.warning("first attempts not recorded", entries=len(answered), error=type(error).__name__)
        return
    for each in decided:
        metrics.FIRST_ATTEMPTS.labels(each.outcome.kind.value).inc()
        if each.outcome.kind is OutcomeKind.SUCCEEDED:
            observe_done(each, clock())
        else:
            log.info("first attempt failed", snapshotId=str(each.entry.snapshot_id), errorCode=each.outcome.error)


def _while_away(work: Callable[[], _Done], *, until: float) -> _Done:
    """Do the work, again as long as the database is away and the monotonic `until` has not passed (A24)."""
    waits = backoff.expo(factor=0.1, max_value=1.0)
    next(waits)  # the generator's first value is for its driver
    while True:
        try:
            return work()
        except DBAPIError as error:
            left = until - time.monotonic()
            if left <= 0 or not is_away(error):
                raise
            log.warning("database away", error=type(error).__name__)
        time.sleep(min(next(waits), left))


def _call(
    entries: Sequence[Entry],
    client: SelectionsClient,
    *,
    call_timeout: timedelta,
    deadline: float,
    stopping: Callable[[], bool],
) -> list[Reply | None]:
    calls = [DetachCall(e.snapshot_id, e.reason, e.requested_by_user_id, e.attempts) for e in entries]
    return client.detach_all(calls, call_timeout=call_timeout, deadline=deadline, stopping=stopping) if calls else []


def _nothing_to_announce(_connection: Connection, event_ids: Sequence[UUID]) -> None:
    """A first attempt never quarantines (J19)."""
    raise AssertionError(f"a first attempt quarantined {len(event_ids)} entries")
