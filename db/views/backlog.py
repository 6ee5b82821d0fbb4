"""How the backlog stands, read from the tables at the moment of asking, so that every replica says the same (J25)."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is waiting. `oldest_age` in seconds, 0 when nothing waits."""

    pending: int
    oldest_age: float
    quarantined: int


VISIBLE = "status IN ('Pending', 'Quarantined') AND NOT (is_guard AND version = 0 AND next_attempt_at > :now)"
"""A guard is no backlog until it is overdue: before that it belongs to a request under way (J25, G13)."""

_BACKLOG = text(f"""
    SELECT
        count(*) FILTER (WHERE status = 'Pending') AS pending,
        min(created_at) FILTER (WHERE status = 'Pending') AS oldest,
        count(*) FILTER (WHERE status = 'Quarantined') AS quarantined
    FROM news.snapshot_detach_outbox
    WHERE {VISIBLE}
""")


def read_backlog(connection: Connection, now: datetime) -> Backlog:
    """The backlog at `now`; one statement."""
    row = connection.execute(_BACKLOG, {"now": now}).one()
    age = 0.0 if row.oldest is None else max(0.0, (now - row.oldest).total_seconds())
    return Backlog(row.pending, age, row.quarantined)
