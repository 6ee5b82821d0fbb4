"""What the job's tests set up and look at: snapshots in selections, intents in news, workers in this process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from dramatiq import Worker
from sqlalchemy import Engine, text

from actors import detach_broker
from actors.process import close_context, open_context
from db.outbox import intents as outbox
from db.outbox.intents import Intent
from pin.clock import new_id, utc_now
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions, WorkerOptions
from pin.config.settings import Settings
from pin.rules.contract import Reason

USER = UUID("6f1b1d0e-5a5b-4c0e-9a37-0c5a9b0a1d11")

FAST: dict[str, Any] = {
    "retry": SnapshotDetachRetryOptions(
        max_run_duration=timedelta(seconds=20),
        detach_call_timeout=timedelta(seconds=2),
        lock_ttl=timedelta(seconds=30),
    ),
    "queue": QueueOptions(lease=timedelta(seconds=20), poll=timedelta(milliseconds=200)),
    "worker": WorkerOptions(time_limit=timedelta(seconds=15)),
}
"""Settings that shorten waits and leave the schedule as the document has it."""


def active_snapshots(engine: Engine, count: int = 1) -> list[UUID]:
    """Make `count` Active snapshots in selections' own table."""
    ids = [new_id() for _ in range(count)]
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO selections.snapshot
                    (id, status, selection_id, content, requested_by_user_id, created_at, updated_at)
                SELECT id, 'Active', id, '{"title": "t", "items": []}', :user, now(), now()
                FROM unnest(CAST(:ids AS uuid[])) AS s (id)
            """),
            {"ids": ids, "user": USER},
        )
    return ids


def stage(
    engine: Engine,
    snapshot_ids: Sequence[UUID],
    *,
    due: datetime | None = None,
    now: datetime | None = None,
    is_guard: bool = False,
) -> list[UUID]:
    """Stage an intent for each snapshot, due now unless said otherwise; answers the entries' ids."""
    moment = now or utc_now()
    intents = [
        Intent(new_id(), snapshot, new_id(), Reason.BLOCK_REPLACED, USER, due or moment, is_guard)
        for snapshot in snapshot_ids
    ]
    with engine.begin() as connection:
        outbox.stage(connection, intents, moment)
    return [intent.id for intent in intents]


def rows(engine: Engine, ids: Sequence[UUID] | None = None) -> list[Any]:
    """The outbox rows of these entries (all, when None), by id order of creation."""
    where = "" if ids is None else "WHERE id = ANY(CAST(:ids AS uuid[]))"
    with engine.connect() as connection:
        found = connection.execute(
            text(f"SELECT * FROM news.snapshot_detach_outbox {where} ORDER BY created_at, id"),
            {} if ids is None else {"ids": list(ids)},
        )
        return list(found)


def row(engine: Engine, entry_id: UUID) -> Any:
    """The one outbox row of this entry."""
    (found,) = rows(engine, [entry_id])
    return found


def change(engine: Engine, statement: str, **values: Any) -> None:
    """Put the database into a state that a test starts from."""
    with engine.begin() as connection:
        connection.execute(text(statement), values)


def query(engine: Engine, statement: str, **values: Any) -> list[Any]:
    """What the database says."""
    with engine.connect() as connection:
        return list(connection.execute(text(statement), values))


def history(engine: Engine, entry_id: UUID) -> list[Any]:
    """The attempts of an entry, oldest first."""
    return query(engine, "SELECT * FROM news.snapshot_detach_attempt WHERE entry_id = :id ORDER BY id", id=entry_id)


@contextmanager
def working(settings: Settings, *, threads: int = 2) -> Iterator[Worker]:
    """A Dramatiq worker with the production broker and actors, in this process."""
    open_context(settings)
    detach_broker.configure(url=settings.database_url, lease=settings.queue.lease, poll=settings.queue.poll)
    worker: Any = Worker(detach_broker, worker_threads=threads, worker_timeout=50)  # type: ignore[no-untyped-call]
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(timeout=10_000)
        detach_broker.close()
        close_context()
