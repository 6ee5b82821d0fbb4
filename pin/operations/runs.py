"""The job's ticks: the list, and one with the attempts made for it (J5, G20)."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Engine

from db.outbox import runs as store
from db.outbox.runs import RunRow
from db.views import entries
from db.views.entries import AttemptRow
from pin.operations import paging

LAST_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class RunPage:
    """One page of ticks, newest first; `next` is the key of the page after it."""

    runs: tuple[RunRow, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class RunDetail:
    """One tick and its last attempts, the latest first (at most LAST_ATTEMPTS)."""

    run: RunRow
    attempts: tuple[AttemptRow, ...]


def list_runs(engine: Engine, *, skipped: bool = True, after: str | None = None, limit: int = 50) -> RunPage:
    """The ticks; without those that met the lock held elsewhere unless `skipped`. Raises paging.PageKeyError."""
    with engine.connect() as connection:
        found = store.history(connection, limit=limit + 1, before=paging.read(after), skipped=skipped)
    shown = found[:limit]
    key = paging.written(shown[-1].started_at, shown[-1].id) if len(found) > limit else None
    return RunPage(tuple(shown), key)


def show_run(engine: Engine, run_id: UUID) -> RunDetail | None:
    """One tick, None for an unknown id."""
    with engine.connect() as connection:
        run = store.one(connection, run_id)
        if run is None:
            return None
        return RunDetail(run, tuple(entries.attempts_of_run(connection, run_id, LAST_ATTEMPTS)))
