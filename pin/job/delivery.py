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
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from db.errors import describe, is_passing
from db.outbox import outcome
from db.outbox.claim import Claimed
from db.outbox.outcome import Answered, AttemptOrigin, Decided
from pin.clock import utc_now
from pin.config.sections import SnapshotDetachRetryOptions
from pin.job.observe import observe_attempts, observe_done
from pin.job.record import Announce, Recording, record
from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient, never
from pin.rules.outbox import NOT_CALLED, Entry, OutcomeKind, Policy, Reply, Verdict
from pin.telemetry import metrics, traces
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

_Done = TypeVar("_Done")


def policy_of(options: SnapshotDetachRetryOptions) -> Policy:
    """The retry schedule that the options describe."""
    return Policy(options.max_attempts, options.backoff_base, options.backoff_factor, options.backoff_cap)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message hands over (G6). `redelivered`: a worker has begun with it before, and did not end it."""

    run_id: UUID
    claimed: tuple[Claimed, ...]
    redelivered: bool = False


@dataclass(slots=True)
class Caution:
    """Whether this process was refused last (401, 403): then the next batch begins with one call alone (G22)."""

    refused: bool = False


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
    caution: Caution | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> list[Decided]:
    """Deliver one batch: one read, the calls, one short transaction of outcomes.

    Entries no longer Pending at the version the message names are skipped (G6). Once `stopping()` holds, a call was
    refused with 401 or 403, or the time is up, no call is started; the calls on the wire finish and are recorded, the
    rest is given back with attempt, due time and place (J6, G22). What an earlier delivery of this batch may have
    called keeps its backoff and goes alone next time (G7).

    `time_limit` is for reading and calling; a database that cannot serve is waited for up to `patience` before the
    calls, which is part of it, and up to `patience` after it (A24). Raises what `db.errors.is_passing` holds of when it
    still cannot then: the batch may be delivered again.
    """
    started = time.monotonic()
    deadline = started + time_limit.total_seconds()
    wait = patience.total_seconds()

    def read() -> list[Entry]:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            return outcome.still_claimed(connection, batch.claimed)

    caution = caution or Caution()
    entries = _while_passing(read, until=started + wait)
    first = entries[:1] if caution.refused else []
    replies = _call(first, client, run_id=batch.run_id, call_timeout=call_timeout, deadline=deadline, stopping=stopping)
    if not _refused(replies):
        rest = entries[len(first) :]
        replies += _call(
            rest, client, run_id=batch.run_id, call_timeout=call_timeout, deadline=deadline, stopping=stopping
        )
    replies += [None] * (len(entries) - len(replies))
    if any(reply is not None for reply in replies):
        caution.refused = _refused(replies)
    answered = [Answered(entry, reply or NOT_CALLED) for entry, reply in zip(entries, replies, strict=True)]
    origin = AttemptOrigin(batch.run_id, worker, traces.current_trace_id())
    recording = Recording(answered, origin, policy, announce, batch.redelivered)
    decided = _while_passing(lambda: recording.run(engine, clock()), until=deadline + wait)
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
    except (DBAPIError, PoolTimeoutError) as error:
        log.warning("first attempts not recorded", entries=len(answered), error=describe(error))
        return
    for each in decided:
        metrics.FIRST_ATTEMPTS.labels(each.outcome.kind.value).inc()
        if each.outcome.kind is OutcomeKind.SUCCEEDED:
            observe_done(each, clock())
        else:
            log.info("first attempt failed", snapshotId=str(each.entry.snapshot_id), errorCode=each.outcome.error)


def _while_passing(work: Callable[[], _Done], *, until: float) -> _Done:
    """Do the work, again as long as the database cannot serve and the monotonic `until` has not passed (A24, A46)."""
    waits = backoff.expo(factor=0.1, max_value=1.0)
    next(waits)  # the generator's first value is for its driver
    while True:
        try:
            return work()
        except (DBAPIError, PoolTimeoutError) as error:
            left = until - time.monotonic()
            if left <= 0 or not is_passing(error):
                raise
            log.warning("database away", error=describe(error))
        time.sleep(min(next(waits), left))


def _call(
    entries: Sequence[Entry],
    client: SelectionsClient,
    *,
    run_id: UUID | None = None,
    call_timeout: timedelta,
    deadline: float,
    stopping: Callable[[], bool],
) -> list[Reply | None]:
    calls = [DetachCall(e.snapshot_id, e.reason, e.requested_by_user_id, e.attempts, run_id) for e in entries]
    return client.detach_all(calls, call_timeout=call_timeout, deadline=deadline, stopping=stopping) if calls else []


def _refused(replies: Sequence[Reply | None]) -> bool:
    return any(reply is not None and reply.verdict is Verdict.REFUSED for reply in replies)


def _nothing_to_announce(_connection: Connection, event_ids: Sequence[UUID]) -> None:
    """A first attempt never quarantines (J19)."""
    raise AssertionError(f"a first attempt quarantined {len(event_ids)} entries")
