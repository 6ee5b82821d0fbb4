"""Delivery: call selections for what is still claimed, decide on each reply, record the outcomes (J12–J17, J19).

Retrieve, decide, store are three things. No database connection is held while a call is on the wire (J12).
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import backoff
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db import outcome, quarantine, runs
from db.claim import Claimed
from db.engine import is_away
from db.outcome import Answered, AttemptOrigin, Decided
from pin.clock import new_id, utc_now
from pin.outbox import Entry, Outcome, OutcomeKind, Policy, Reply, Status, Verdict, decide, ends_pass
from pin.selections_client import DetachCall, SelectionsClient, never
from pin.settings import SnapshotDetachRetryOptions
from pin.telemetry import metrics, traces
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.ATTEMPT_SECONDS, [verdict.value for verdict in Verdict])
metrics.declare(
    metrics.FIRST_ATTEMPTS, [kind.value for kind in (OutcomeKind.SUCCEEDED, OutcomeKind.RETRIED, OutcomeKind.LATE)]
)

Announce = Callable[[Connection, Sequence[UUID]], None]
"""Writes the alert's message for these quarantine events into the caller's transaction (G21)."""

_Done = TypeVar("_Done")

_SERIALIZATION_VICTIM = {"40001", "40P01"}
_VICTIM_TRIES = 3


def policy_of(options: SnapshotDetachRetryOptions) -> Policy:
    """The retry schedule that the options describe."""
    return Policy(options.max_attempts, options.backoff_base, options.backoff_factor, options.backoff_cap)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one message hands over (G6)."""

    run_id: UUID
    claimed: tuple[Claimed, ...]


@dataclass(frozen=True, slots=True)
class _Terms:
    """What every outcome of one recording has in common."""

    origin: AttemptOrigin
    policy: Policy
    now: datetime
    announce: Announce


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
    still away then (`db.engine.is_away`): the batch may be delivered again.
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
    for each in decided:
        _observe(each, clock())
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
            _observe_done(each, clock())
        else:
            log.info("first attempt failed", snapshotId=str(each.entry.snapshot_id), errorCode=each.outcome.error)


def record(
    engine: Engine,
    answered: Sequence[Answered],
    *,
    origin: AttemptOrigin,
    policy: Policy,
    now: datetime,
    announce: Announce,
) -> list[Decided]:
    """Record the outcomes of a batch in one short transaction (J13); answers what was decided.

    An entry that was answered twice is decided on twice, one transaction after the other.

    When that fails for a reason in the data, the rows are recorded singly and the bad one is isolated. Raises
    sqlalchemy.exc.DBAPIError when the database is away; what was recorded by then is late when it is recorded again.
    """
    terms = _Terms(origin, policy, now, announce)
    decided: list[Decided] = []
    for once_each in _rounds(answered):
        try:
            decided += _record(engine, once_each, terms)
        except DBAPIError as error:
            if is_away(error):
                raise
            log.warning("batch outcome refused, recording singly", rows=len(once_each), error=type(error).__name__)
            decided += _record_singly(engine, once_each, terms)
    return decided


def _record_singly(engine: Engine, answered: Sequence[Answered], terms: _Terms) -> list[Decided]:
    """Each outcome in a transaction of its own; one that cannot be recorded is logged and left to G7 (J13, J17)."""
    decided: list[Decided] = []
    for one in answered:
        try:
            decided += _record(engine, [one], terms)
        except DBAPIError as error:
            if is_away(error):
                raise
            log.exception("outcome not recorded", entryId=str(one.called.id), snapshotId=str(one.called.snapshot_id))
    return decided


def _rounds(answered: Sequence[Answered]) -> list[list[Answered]]:
    """The answers so that each round has an entry once: a second answer is decided on what the first has left."""
    rounds: list[list[Answered]] = []
    turns: Counter[UUID] = Counter()
    for one in answered:
        turn = turns[one.called.id]
        if turn == len(rounds):
            rounds.append([])
        rounds[turn].append(one)
        turns[one.called.id] += 1
    return rounds


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


def _record(engine: Engine, answered: Sequence[Answered], terms: _Terms) -> list[Decided]:
    """One transaction: lock the rows in id order, decide on them as they stand, write, keep the history (G21)."""
    for tries_left in reversed(range(_VICTIM_TRIES)):
        try:
            with engine.begin() as connection:
                return _record_in(connection, answered, terms)
        except DBAPIError as error:
            if tries_left == 0 or getattr(error.orig, "sqlstate", None) not in _SERIALIZATION_VICTIM:
                raise
    raise AssertionError("the last try returns or raises")


def _record_in(connection: Connection, answered: Sequence[Answered], terms: _Terms) -> list[Decided]:
    now = terms.now
    standing = outcome.lock(connection, [one.called.id for one in answered])
    decided = [
        Decided(one.called, entry, one.reply, decide(entry, one.called.version, one.reply, now, terms.policy))
        for one in answered
        if (entry := standing.get(one.called.id)) is not None
    ]
    outcome.apply(connection, decided, now)
    outcome.keep_history(connection, decided, terms.origin, now)
    write_quarantined(connection, [(d.entry, d.outcome) for d in decided], now, terms.announce)
    quarantine.write_audit(connection, [_late_success(d) for d in decided if _is_late_success(d)], now)
    error = ends_pass(one.reply for one in answered)
    if error is not None and terms.origin.run_id is not None:
        runs.halt(connection, terms.origin.run_id, error)
    return decided


def write_quarantined(
    connection: Connection, decided: Sequence[tuple[Entry, Outcome]], now: datetime, announce: Announce
) -> None:
    """Leave the event of each move to Quarantined, and its alert's message, in the same transaction (J15, G21)."""
    events = [
        quarantine.QuarantinedEvent(
            id=new_id(),
            entry_id=entry.id,
            snapshot_id=entry.snapshot_id,
            post_id=entry.post_id,
            reason=str(entry.reason),
            attempts=entry.attempts,
            last_error=decision.error,
            occurred_at=now,
        )
        for entry, decision in decided
        if decision.kind is OutcomeKind.QUARANTINED
    ]
    if events:
        quarantine.write_events(connection, events, now)
        announce(connection, [event.id for event in events])


def _nothing_to_announce(_connection: Connection, event_ids: Sequence[UUID]) -> None:
    """A first attempt never quarantines (J19)."""
    raise AssertionError(f"a first attempt quarantined {len(event_ids)} entries")


def _is_late_success(decided: Decided) -> bool:
    return decided.outcome.kind is OutcomeKind.SUCCEEDED and decided.entry.status == Status.QUARANTINED


def _late_success(decided: Decided) -> quarantine.AuditRow:
    return quarantine.AuditRow(
        id=new_id(),
        entry_id=decided.entry.id,
        snapshot_id=decided.entry.snapshot_id,
        actor="system",
        action="late-success",
        reason="a success arrived after the quarantine (G9)",
        details={"calledVersion": decided.called.version},
    )


def _observe(decided: Decided, now: datetime) -> None:
    """Logs and counters of one recorded attempt of the job (J24, J25, G16)."""
    entry, reply = decided.entry, decided.reply
    metrics.ATTEMPT_SECONDS.labels(reply.verdict.value).observe(reply.duration.total_seconds())
    facts = {"snapshotId": str(entry.snapshot_id), "attempts": decided.called.attempts}
    if decided.outcome.kind is OutcomeKind.SUCCEEDED:
        _observe_done(decided, now)
        return
    if reply.verdict is not Verdict.DETACHED:
        metrics.FAILED.inc()
    match decided.outcome.kind:
        case OutcomeKind.RETRIED:
            metrics.RETRIED.inc()
            log.info("entry retry", errorCode=decided.outcome.error, **facts)
        case OutcomeKind.QUARANTINED:
            metrics.QUARANTINED.inc()
            log.warning("entry quarantined", reason=str(entry.reason), errorCode=decided.outcome.error, **facts)
        case OutcomeKind.LATE:
            log.info("late reply", errorCode=decided.outcome.error, **facts)


def _observe_done(decided: Decided, now: datetime) -> None:
    metrics.SUCCEEDED.inc()
    metrics.LAG.observe(max(0.0, (now - decided.entry.created_at).total_seconds()))
    log.info("entry detached", snapshotId=str(decided.entry.snapshot_id), attempts=decided.called.attempts)
