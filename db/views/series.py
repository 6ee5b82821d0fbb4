"""How the backlog and the lag have run over the last hours, counted from the tables: no sampler, no new writer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from db.views.backlog import read_backlog

LAG_EDGES = (1, 5, 30, 60, 120, 300, 600, 1200, 3600)
"""Seconds. What lies above the last edge is a class of its own."""


@dataclass(frozen=True, slots=True)
class Point:
    """The end of one step: entries that were Pending then, and what was delivered during the step."""

    at: datetime
    pending: int
    delivered: int


# The backlog at a moment is today's, less what has come since, plus what has ended since. Ends are read from the
# history (an index on its time), not from the entries, which are purged and have none.
_EVENTS = text("""
    SELECT step, sum(came)::bigint AS came, sum(delivered)::bigint AS delivered, sum(given_up)::bigint AS given_up
    FROM (
        SELECT floor(extract(epoch FROM created_at - :since) / :step)::int AS step, 1 AS came, 0 AS delivered,
            0 AS given_up
        FROM news.snapshot_detach_outbox
        WHERE created_at >= :since AND created_at < :now AND NOT (is_guard AND version = 0 AND next_attempt_at > :now)
        UNION ALL
        SELECT floor(extract(epoch FROM recorded_at - :since) / :step)::int, 0,
            (outcome = 'Succeeded')::int, (outcome = 'Quarantined')::int
        FROM news.snapshot_detach_attempt
        WHERE recorded_at >= :since AND recorded_at < :now AND outcome IN ('Succeeded', 'Quarantined')
    ) AS events GROUP BY step
""")

_LAGS = text("""
    SELECT width_bucket(extract(epoch FROM a.recorded_at - o.created_at)::float8, CAST(:edges AS float8[])) AS class,
        count(*) AS count
    FROM news.snapshot_detach_attempt a JOIN news.snapshot_detach_outbox o ON o.id = a.entry_id
    WHERE a.recorded_at >= :since AND a.outcome = 'Succeeded'
    GROUP BY class
""")


def pending(connection: Connection, now: datetime) -> int:
    """The backlog at `now`."""
    return read_backlog(connection, now).pending


def backlog(connection: Connection, *, pending: int, now: datetime, window: timedelta, step: timedelta) -> list[Point]:
    """The steps of `window` up to `now`, oldest first; `pending` is the backlog at `now`, which they are counted from.

    A re-enqueue is in no history: before it, an entry that was given back counts as given up twice. Never below zero.
    """
    count = max(1, round(window / step))
    since = now - count * step
    rows = connection.execute(_EVENTS, {"since": since, "now": now, "step": step.total_seconds()})
    events = {row.step: row for row in rows}
    points: list[Point] = []
    at_end = pending
    for number in range(count - 1, -1, -1):
        event = events.get(number)
        delivered = event.delivered if event else 0
        points.append(Point(since + (number + 1) * step, max(0, at_end), delivered))
        if event:
            at_end += event.delivered + event.given_up - event.came
    return points[::-1]


def lags(connection: Connection, *, since: datetime, edges: Sequence[float]) -> list[int]:
    """How many were delivered since then, by seconds from the intent to Done: below each of `edges`, and above all."""
    found = {
        row[0]: row[1] for row in connection.execute(_LAGS, {"since": since, "edges": [float(edge) for edge in edges]})
    }
    return [found.get(number, 0) for number in range(len(edges) + 1)]
