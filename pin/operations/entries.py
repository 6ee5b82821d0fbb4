"""Entries: search them page by page, and one entry's life as a timeline (J29, G7)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Engine

from db.outbox import runs
from db.runner import pause
from db.views import entries as store
from db.views.entries import COUNT_UP_TO, StoredEntry
from pin.config.sections import SnapshotDetachRetryOptions
from pin.operations import paging
from pin.operations.life import Moment, timeline
from pin.operations.searching import SearchError, conditions
from pin.rules.outbox import Status

__all__ = ["COUNT_UP_TO", "EntryLife", "Next", "NextKind", "Page", "SearchError", "search", "show"]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of entries, newest first. `next` is the key of the page after it, None on the last one.

    `counts`: by state, of all that the search line finds whatever its `state:` says; COUNT_UP_TO + 1 stands for more.
    """

    entries: tuple[StoredEntry, ...]
    counts: dict[str, int]
    next: str | None


class NextKind(StrEnum):
    """What an entry waits for."""

    NOTHING = "Nothing"
    """Done: it is over."""
    OPERATOR = "Operator"
    """Quarantined: a person must look."""
    RESULT = "Result"
    """A worker has it: its outcome is to come."""
    ATTEMPT = "Attempt"
    """The first tick after `at` calls selections."""
    QUARANTINE = "Quarantine"
    """Its attempts are spent: the next tick quarantines it uncalled (G7)."""
    SWITCH = "Switch"
    """A guard: the post's change removes it, or the job detaches the orphan after `at` (G13)."""


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next and when; `says` is one sentence. `at` is None where nothing is due."""

    kind: NextKind
    says: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class EntryLife:
    """One entry: as it stands, how it came to that, and what comes next."""

    stored: StoredEntry
    timeline: tuple[Moment, ...]
    next: Next
    max_attempts: int


def search(engine: Engine, query: str, *, now: datetime, after: str | None = None, limit: int = 50) -> Page:
    """The entries that the search line finds, paged by the key (created_at, id).

    Raises SearchError naming the token that it does not understand, paging.PageKeyError for a foreign `after`.
    """
    wanted = conditions(query, now)
    key = paging.read(after)
    with engine.connect() as connection:
        found = store.page(connection, list(wanted.values()), after=key, limit=limit + 1)
        counts = store.counts(connection, [one for name, one in wanted.items() if name != "state"])
    shown = found[:limit]
    last = shown[-1].entry if len(found) > limit else None
    return Page(tuple(shown), counts, paging.written(last.created_at, last.id) if last else None)


def show(engine: Engine, entry_id: UUID, *, now: datetime, retry: SnapshotDetachRetryOptions) -> EntryLife | None:
    """The entry's life; None for an unknown id (a guard that its post's switch removed is unknown as well)."""
    with engine.connect() as connection:
        stored = store.one(connection, entry_id)
        if stored is None:
            return None
        attempts = store.attempts(connection, entry_id)
        events = store.events(connection, entry_id)
        audit = store.audit_of(connection, entry_id)
        paused = pause.read(connection) is not None
        ticks = runs.history(connection, limit=1)
    moments = timeline(stored, attempts, events, audit, now)
    tick = ticks[0].started_at + retry.polling_interval if ticks else None
    return EntryLife(stored, tuple(moments), _next(stored, now, retry.max_attempts, tick, paused), retry.max_attempts)


def _next(stored: StoredEntry, now: datetime, max_attempts: int, tick: datetime | None, paused: bool) -> Next:
    entry, due = stored.entry, stored.entry.next_attempt_at
    held = " The job is paused: nothing is called until it is resumed." if paused else ""
    if entry.status == Status.DONE:
        return Next(NextKind.NOTHING, "Nothing: the snapshot is detached.", None)
    if entry.status == Status.QUARANTINED:
        says = "A person must look: the job has given it up. Once the cause is gone, requeue it."
        return Next(NextKind.OPERATOR, says, None)
    if stored.outcome_due and due > now:
        says = "A worker has it; if no outcome comes, it is called again once it is due."
        return Next(NextKind.RESULT, says, due)
    if entry.is_guard and entry.version == 0 and due > now:
        says = "The post's change removes this guard; if it never comes, the orphan is detached once it is due."
        return Next(NextKind.SWITCH, says, due)
    when = _tick_after(due, now, tick)
    if entry.attempts > max_attempts:
        return Next(NextKind.QUARANTINE, f"Its attempts are spent: the next tick quarantines it uncalled.{held}", when)
    lost = " alone in its batch, because its last outcome is unknown" if stored.outcome_due else ""
    number = f"attempt {entry.attempts + 1} of {max_attempts}"
    what = number if entry.attempts < max_attempts else "one attempt more"
    return Next(NextKind.ATTEMPT, f"The first tick after it is due makes {what}{lost}.{held}", when)


def _tick_after(due: datetime, now: datetime, tick: datetime | None) -> datetime:
    """The tick that will take it, if ticks come as expected; without a known one, when it is due."""
    return max(due, now) if tick is None else max(due, tick, now - timedelta(0))
