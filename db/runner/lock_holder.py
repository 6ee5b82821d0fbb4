"""Who holds the runner's advisory lock, as the server sees it; and how to take it away from them (J29, G5)."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from db.runner.lock import lock_key


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The session that holds the lock. `since`: when it connected, just before it took the lock; the server's clock."""

    pid: int
    application: str
    host: str
    since: datetime
    runner: str | None
    """The newest run without an end, as its process names itself; None when no run says that it is under way."""
    held_seconds: float


# pg_locks shows the two halves as unsigned.
_HELD = """
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = CAST(:first AS bigint)::oid AND l.objid = CAST(:second AS bigint)::oid
"""

_HOLDER = text(f"""
    SELECT a.pid, a.application_name AS application, coalesce(host(a.client_addr), 'local') AS host,
        a.backend_start AS since, extract(epoch FROM clock_timestamp() - a.backend_start)::float8 AS held_seconds,
        (SELECT runner FROM news.snapshot_detach_run WHERE ended_at IS NULL ORDER BY started_at DESC LIMIT 1) AS runner
    {_HELD}
""")

_END = text(f"SELECT pg_terminate_backend(a.pid) AS ended {_HELD} AND a.pid = :pid")


def holder(connection: Connection) -> LockHolder | None:
    """Who holds the lock now, None when it is free."""
    row = connection.execute(_HOLDER, _key()).one_or_none()
    if row is None:
        return None
    return LockHolder(row.pid, row.application, row.host, row.since, row.runner, row.held_seconds)


def end_holder(connection: Connection, pid: int) -> bool:
    """End the session `pid`, if it holds the lock still; the server frees the lock with it."""
    return bool(connection.execute(_END, _key() | {"pid": pid}).scalar())


def _key() -> dict[str, int]:
    first, second = lock_key()
    return {"first": first & 0xFFFFFFFF, "second": second & 0xFFFFFFFF}
