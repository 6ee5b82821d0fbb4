"""Decide on what was answered and record it: one short transaction a batch (J13–J17, G7, G9, G21)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from db.errors import is_away
from db.outbox import outcome, quarantine, runs
from db.outbox.outcome import Answered, AttemptOrigin, Decided
from pin.clock import new_id
from pin.rules.outbox import Entry, Outcome, OutcomeKind, Policy, Status, decide, ends_pass
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

Announce = Callable[[Connection, Sequence[UUID]], None]
"""Writes the alert's message for these quarantine events into the caller's transaction (G21)."""

_SERIALIZATION_VICTIM = {"40001", "40P01"}
_VICTIM_TRIES = 3


@dataclass(frozen=True, slots=True)
class _Terms:
    """What every outcome of one recording has in common."""

    origin: AttemptOrigin
    policy: Policy
    now: datetime
    announce: Announce


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
