"""An entry's timeline, put together from its row, its attempts, its events and the audit. Pure.

Attempts are counted at the claim, one each (J11), so that a number without an answer is an attempt whose outcome was
lost (G7); a re-enqueue begins the count anew, and its audit row tells how far it had come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from db.views.entries import AttemptRow, AuditEntry, EventRow, StoredEntry
from pin.rules.outbox import ErrorClass, OutcomeKind, Status

NOT_CALLED = OutcomeKind.NOT_CALLED.value
UNCALLED = (ErrorClass.OUTCOME_LOST, ErrorClass.ATTEMPTS_SPENT)


class MomentKind(StrEnum):
    """What happened."""

    STAGED = "Staged"
    ATTEMPT = "Attempt"
    NOT_CALLED = "NotCalled"
    """A claim whose batch ended before the call: attempt, due time and place went back (G22)."""
    LOST = "Lost"
    """An attempt was counted and its outcome never came."""
    UNDER_WAY = "UnderWay"
    """An attempt was counted and its outcome may still come."""
    QUARANTINED = "Quarantined"
    ALERTED = "Alerted"
    AUDIT = "Audit"
    DONE = "Done"


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of a life. `at` is None for an attempt that left no trace: it lies between its neighbours."""

    kind: MomentKind
    at: datetime | None
    says: str
    attempt: AttemptRow | None = None
    number: int | None = None
    """Of an attempt; 0 is the owner's own first call."""
    audit: AuditEntry | None = None
    details: Mapping[str, Any] | None = None


def timeline(
    stored: StoredEntry,
    attempts: Sequence[AttemptRow],
    events: Sequence[EventRow],
    audit: Sequence[AuditEntry],
    now: datetime,
) -> list[Moment]:
    """All that is known of the entry, in its order."""
    entry = stored.entry
    noun = "guard" if entry.is_guard else "intent"
    staged = Moment(
        MomentKind.STAGED,
        entry.created_at,
        f"{noun} staged for {entry.reason}, asked for by user {entry.requested_by_user_id}",
        details={"requestedByUserId": str(entry.requested_by_user_id), "reason": str(entry.reason)},
    )
    answered = [Moment(_kind(one), one.recorded_at, _told(one), one, one.attempt) for one in attempts]
    told = [*(_event(event) for event in events), *(_audited(one) for one in audit)]
    told += [
        Moment(MomentKind.ALERTED, event.alerted_at, "the alert was raised") for event in events if event.alerted_at
    ]
    if entry.status == Status.DONE:
        told.append(Moment(MomentKind.DONE, stored.updated_at, "Done: selections says that it is detached"))
    moments = sorted([staged, *answered, *told], key=_order)
    for missing in _unanswered(stored, attempts, audit, now):
        moments.insert(_place(moments, missing), missing.moment)
    return moments


@dataclass(frozen=True, slots=True)
class _Unanswered:
    moment: Moment
    after: datetime | None
    """Not before this re-enqueue."""
    before: datetime | None
    """Not after the next one."""


def _unanswered(
    stored: StoredEntry, attempts: Sequence[AttemptRow], audit: Sequence[AuditEntry], now: datetime
) -> list[_Unanswered]:
    entry = stored.entry
    requeues = [one for one in audit if one.action == "requeue"]
    counted = [int(one.details.get("attempts", 0)) for one in requeues] + [entry.attempts]
    starts = [None, *requeues]
    ends = [*requeues, None]
    made = [
        one for one in attempts if one.outcome != NOT_CALLED
    ]  # its number went back, and is that of a later attempt
    missing: list[_Unanswered] = []
    for number_of, begun, ended in zip(counted, starts, ends, strict=True):
        start, end = _time(begun), _time(ended)
        answered = {one.attempt for one in made if _is_after(one, begun) and not _is_after(one, ended, at_end=True)}
        for number in range(1, number_of + 1):
            if number in answered:
                continue
            last = end is None and number == number_of
            if last and stored.outcome_due and entry.next_attempt_at > now:
                says = f"attempt {number} was handed over and is under way"
                moment = Moment(MomentKind.UNDER_WAY, stored.updated_at, says, number=number)
            else:
                at = stored.updated_at if last and stored.outcome_due else None
                says = f"attempt {number}: outcome unknown; the worker died before recording it"
                moment = Moment(MomentKind.LOST, at, says, number=number)
            missing.append(_Unanswered(moment, start, end))
    return missing


def _place(moments: Sequence[Moment], missing: _Unanswered) -> int:
    """Before the first later attempt of its count, the end of the count, or whatever is later than its time."""
    number, at = missing.moment.number or 0, missing.moment.at
    for index, moment in enumerate(moments):
        if moment.at is None or (missing.after is not None and moment.at <= missing.after):
            continue
        if at is not None:
            if moment.at > at:
                return index
            continue
        later = moment.number is not None and moment.number > number
        over = moment.kind in {MomentKind.QUARANTINED, MomentKind.DONE}
        if later or over or (missing.before is not None and moment.at >= missing.before):
            return index
    return len(moments)


def _time(one: AuditEntry | None) -> datetime | None:
    return None if one is None else one.occurred_at


def _is_after(one: AttemptRow, requeue: AuditEntry | None, *, at_end: bool = False) -> bool:
    """Whether the attempt was claimed after that re-enqueue: by its version, which a late answer keeps."""
    if requeue is None:
        return not at_end
    version = requeue.details.get("version")
    return one.recorded_at > requeue.occurred_at if version is None else one.entry_version > int(version)


def _order(moment: Moment) -> tuple[datetime, int]:
    if moment.at is None:
        raise AssertionError("only what was lost has no time, and it is placed afterwards")
    return moment.at, list(MomentKind).index(moment.kind)


def _kind(one: AttemptRow) -> MomentKind:
    return MomentKind.NOT_CALLED if one.outcome == NOT_CALLED else MomentKind.ATTEMPT


def _told(one: AttemptRow) -> str:
    what = "the owner's own call" if one.attempt == 0 else f"attempt {one.attempt}"
    match one.outcome:
        case "Succeeded":
            return f"{what} succeeded in {one.duration_ms} ms"
        case "Late":
            return f"{what} was answered too late to count: {one.error or 'success'} in {one.duration_ms} ms"
        case OutcomeKind.NOT_CALLED:
            return f"{what} was not made: its batch ended before the call; attempt and place were kept"
        case _ if one.error in UNCALLED:
            return f"attempts spent: quarantined without another call ({one.error})"
        case _:
            return f"{what} failed with {one.error or 'no error known'} in {one.duration_ms} ms"


def _event(event: EventRow) -> Moment:
    says = f"Quarantined after {event.attempts} attempts: {event.last_error or 'no error known'}"
    return Moment(MomentKind.QUARANTINED, event.occurred_at, says)


def _audited(one: AuditEntry) -> Moment:
    return Moment(MomentKind.AUDIT, one.occurred_at, f"{one.action} by {one.actor}: {one.reason}", audit=one)
