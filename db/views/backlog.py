"""How the backlog stands, read from the tables at the moment of asking, so that every replica says the same (J25)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is waiting. `oldest_age` in seconds, 0 when nothing waits.

    `window_age` is that age without the time in which the job was halted or paused: W does not run then (G23).
    """

    pending: int
    oldest_age: float
    quarantined: int
    window_age: float = 0.0


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


# A halted or paused run stands for the time until the next run began.
_STOPPED = text("""
    SELECT coalesce(sum(until - greatest(started_at, :since)), interval '0') FROM (
        SELECT started_at, result, least(coalesce(lead(started_at) OVER (ORDER BY started_at), :now), :now) AS until
        FROM news.snapshot_detach_run
        WHERE result IS DISTINCT FROM 'Skipped' AND started_at >= coalesce((
            SELECT max(started_at) FROM news.snapshot_detach_run
            WHERE started_at <= :since AND result IS DISTINCT FROM 'Skipped'
        ), :since)
    ) AS run
    WHERE result IN ('Halted', 'Paused') AND until > :since
""")


def read_backlog(connection: Connection, now: datetime) -> Backlog:
    """The backlog at `now`; one statement, and one more while something waits."""
    row = connection.execute(_BACKLOG, {"now": now}).one()
    if row.oldest is None:
        return Backlog(row.pending, 0.0, row.quarantined)
    stopped: timedelta = connection.execute(_STOPPED, {"since": row.oldest, "now": now}).scalar_one()
    age = max(timedelta(0), now - row.oldest)
    counted = max(timedelta(0), age - stopped)
    return Backlog(row.pending, age.total_seconds(), row.quarantined, counted.total_seconds())
