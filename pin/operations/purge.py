"""Purge: Done entries older than an age go, with their history and events, in bounded transactions; the audit stays.

No event goes before all its sinks have been told or given up, nor does its entry (G27).
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from sqlalchemy import Engine

from db.outbox import purge as store
from db.outbox.purge import Purged
from pin.operations import audit

BATCH = 1000
YOUNGEST = timedelta(hours=1)
"""Younger entries may still get a late reply, and are what an operator looks at."""


def preview(engine: Engine, *, older_than: timedelta, now: datetime) -> Purged:
    """What a purge would delete; changes nothing. Raises ValueError for an age below YOUNGEST."""
    _check(older_than)
    with engine.connect() as connection:
        return store.count(connection, now - older_than)


def purge(
    engine: Engine,
    *,
    older_than: timedelta,
    actor: str,
    reason: str,
    now: datetime,
    batch: int = BATCH,
    stopping: Callable[[], bool] = lambda: False,
) -> Iterator[Purged]:
    """Delete them, up to `batch` entries a transaction, each with its audit row; yields what each deleted.

    Ends when nothing is left or `stopping()` holds. Raises ValueError without actor or reason, or for an age below
    YOUNGEST, before anything is deleted.
    """
    audit.need(actor, reason)
    _check(older_than)
    return _batches(engine, now - older_than, actor, reason, now, batch, stopping)


def _batches(
    engine: Engine,
    before: datetime,
    actor: str,
    reason: str,
    now: datetime,
    batch: int,
    stopping: Callable[[], bool],
) -> Iterator[Purged]:
    while not stopping():
        with engine.begin() as connection:
            gone = store.purge(connection, before, batch)
            if gone.entries:
                details = {
                    "doneBefore": before.isoformat(),
                    "entries": gone.entries,
                    "attempts": gone.attempts,
                    "events": gone.events,
                }
                audit.record(connection, actor=actor, action="purge", reason=reason, now=now, details=details)
        if not gone.entries:
            return
        yield gone
        if gone.entries < batch:
            return


def _check(older_than: timedelta) -> None:
    if older_than < YOUNGEST:
        raise ValueError(f"an age below {YOUNGEST} is refused: such entries may still get a late reply")
