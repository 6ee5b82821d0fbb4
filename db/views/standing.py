"""How the job stands at one moment, in a few statements: what the operator's first page is made of (J25, J27, J29)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from db.runner.gate import DETACH_QUEUE
from db.views.backlog import VISIBLE


@dataclass(frozen=True, slots=True)
class Waiting:
    """The Pending and Quarantined entries; a guard counts once it is overdue, as in the metrics."""

    pending: int
    due: int
    overdue: int
    """Pending, and older than the age that raises the alert."""
    oldest: datetime | None
    first_due: datetime | None
    last_due: datetime | None
    quarantined: int


@dataclass(frozen=True, slots=True)
class Recent:
    """The attempts of the last minutes, synchronous first ones as well."""

    delivered: int
    delivered_last_minute: int
    delivered_overdue: int
    """Delivered, though the entry was older than the age that raises the alert."""
    failed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """One kind of answer among the target's last ones; `error` None is success."""

    error: str | None
    count: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Batches:
    """The detach queue. `unconsumed_seconds`: how long the longest waiting one has lain, 0 when none waits."""

    queued: int
    in_flight: int
    expired: int
    """Consumed, and its lease has run out: a worker died or hangs."""
    rejected: int
    unconsumed_seconds: float


_WAITING = text(f"""
    SELECT
        count(*) FILTER (WHERE status = 'Pending') AS pending,
        count(*) FILTER (WHERE status = 'Pending' AND next_attempt_at <= :now) AS due,
        count(*) FILTER (WHERE status = 'Pending' AND created_at < :overdue_before) AS overdue,
        min(created_at) FILTER (WHERE status = 'Pending') AS oldest,
        min(next_attempt_at) FILTER (WHERE status = 'Pending') AS first_due,
        max(next_attempt_at) FILTER (WHERE status = 'Pending') AS last_due,
        count(*) FILTER (WHERE status = 'Quarantined') AS quarantined
    FROM news.snapshot_detach_outbox
    WHERE {VISIBLE}
""")

_ERRORS = text(f"""
    SELECT last_error AS error, count(*) AS count, max(updated_at) AS last_at
    FROM news.snapshot_detach_outbox
    WHERE {VISIBLE} AND status = 'Pending' AND last_error IS NOT NULL
    GROUP BY last_error ORDER BY count DESC, error LIMIT 5
""")

_RECENT = text("""
    SELECT
        count(*) FILTER (WHERE a.outcome = 'Succeeded') AS delivered,
        count(*) FILTER (WHERE a.outcome = 'Succeeded' AND a.recorded_at > :minute_ago) AS delivered_last_minute,
        count(*) FILTER (WHERE a.outcome = 'Succeeded' AND a.recorded_at - o.created_at > :limit) AS delivered_overdue,
        count(*) FILTER (WHERE a.outcome IN ('Retried', 'Quarantined')) AS failed
    FROM news.snapshot_detach_attempt a LEFT JOIN news.snapshot_detach_outbox o ON o.id = a.entry_id
    WHERE a.recorded_at > :since
""")

# Numbers that a rolled back recording has used up are missing: hence some more than are wanted.
_ANSWERS = text("""
    SELECT error, count(*) AS count, max(recorded_at) AS last_at FROM (
        SELECT CASE WHEN outcome = 'Succeeded' THEN NULL ELSE coalesce(error, 'late success') END AS error, recorded_at
        FROM news.snapshot_detach_attempt
        WHERE outcome <> 'NotCalled'
            AND id > (SELECT last_value FROM news.snapshot_detach_attempt_id_seq) - 10 * CAST(:limit AS bigint)
        ORDER BY id DESC LIMIT :limit
    ) AS last GROUP BY error ORDER BY last_at DESC
""")

_BATCHES = text("""
    SELECT
        count(*) FILTER (WHERE state = 'queued') AS queued,
        count(*) FILTER (WHERE state = 'consumed' AND mtime >= clock_timestamp() - CAST(:lease AS interval))
            AS in_flight,
        count(*) FILTER (WHERE state = 'consumed' AND mtime < clock_timestamp() - CAST(:lease AS interval)) AS expired,
        count(*) FILTER (WHERE state = 'rejected') AS rejected,
        coalesce(extract(epoch FROM clock_timestamp() - min(mtime) FILTER (
            WHERE state = 'queued' OR state = 'consumed' AND mtime < clock_timestamp() - CAST(:lease AS interval)
        )), 0)::float8 AS unconsumed_seconds
    FROM dramatiq.queue WHERE queue_name = :queue AND state IN ('queued', 'consumed', 'rejected')
""")


def waiting(connection: Connection, *, now: datetime, overdue_before: datetime) -> Waiting:
    """What waits, counted at `now`."""
    return Waiting(*connection.execute(_WAITING, {"now": now, "overdue_before": overdue_before}).one())


def pending_errors(connection: Connection, *, now: datetime) -> list[Answer]:
    """What the Pending entries failed with last, most frequent first."""
    return [Answer(*row) for row in connection.execute(_ERRORS, {"now": now})]


def recent(connection: Connection, *, now: datetime, window: timedelta, limit: timedelta) -> Recent:
    """The attempts recorded in the last `window`; `limit` is the age above which an entry is overdue."""
    values: dict[str, Any] = {"since": now - window, "minute_ago": now - timedelta(minutes=1), "limit": limit}
    return Recent(*connection.execute(_RECENT, values).one())


def last_answers(connection: Connection, limit: int) -> list[Answer]:
    """The last `limit` attempts by their error, the latest kind first."""
    return [Answer(*row) for row in connection.execute(_ANSWERS, {"limit": limit})]


def batches(connection: Connection, *, lease: timedelta) -> Batches:
    """The detach queue as it stands, by the database's clock (G11)."""
    return Batches(*connection.execute(_BATCHES, {"lease": lease, "queue": DETACH_QUEUE}).one())
