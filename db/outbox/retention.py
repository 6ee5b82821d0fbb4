"""Prune what is over, a window of keys at a time: no statement looks at more rows than its window.

Ids of version 7 are in the order of time, and nothing is completed before its id was made: what was completed before a
moment has an id from before it. So a walk in id order up to that moment meets everything that may go, without an index
of its own. What stays (Pending, Quarantined, completed lately) is met once a lap; the place is kept between runs.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import Connection, TextClause, text

START = UUID(int=0)


class Kind(StrEnum):
    """What is pruned, each with a setting of its own: a closed set, in the order in which a run takes it."""

    DONE = "done"
    HISTORY = "history"
    EVENTS = "events"
    RUNS = "runs"
    PLANS = "plans"
    MESSAGES = "messages"
    AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Window:
    """What became of one window: rows that went, and where the next one begins (START: the lap is over)."""

    pruned: int
    place: UUID


_TOLD = """
    NOT EXISTS (
        SELECT FROM news.snapshot_detach_quarantined_event e WHERE e.entry_id = o.id AND e.alerted_at IS NULL
    )
"""

# What others hold is passed over: a late reply may be about to be recorded. It is met again in the next lap.
_SEEN = """
    WITH seen AS MATERIALIZED (
        SELECT id FROM news.{table} WHERE id > :place AND id < :bound ORDER BY id LIMIT :size
    ), old AS MATERIALIZED (
        SELECT o.id FROM news.{table} o
        WHERE o.id = ANY(ARRAY(SELECT id FROM seen)) AND {over}
        ORDER BY o.id FOR UPDATE SKIP LOCKED
    )
"""
_LAST = "(SELECT CASE WHEN count(*) = :size THEN (array_agg(id ORDER BY id DESC))[1] END FROM seen) AS place"


def _walk(table: str, over: str, deletes: str | None = None) -> TextClause:
    gone = deletes or f"gone AS (DELETE FROM news.{table} WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1)"
    seen = _SEEN.format(table=table, over=over)
    return text(f"{seen}, {gone} SELECT (SELECT count(*) FROM gone) AS pruned, {_LAST}")


_DONE = _walk(
    "snapshot_detach_outbox",
    f"o.status = 'Done' AND o.updated_at < :before AND {_TOLD}",
    """attempts AS (
        DELETE FROM news.snapshot_detach_attempt WHERE entry_id = ANY(ARRAY(SELECT id FROM old))
    ), events AS (
        DELETE FROM news.snapshot_detach_quarantined_event WHERE entry_id = ANY(ARRAY(SELECT id FROM old))
    ), gone AS (
        DELETE FROM news.snapshot_detach_outbox WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1
    )""",
)
_HISTORY = _walk(
    "snapshot_detach_outbox",
    "o.status = 'Done' AND o.updated_at < :before",
    "gone AS (DELETE FROM news.snapshot_detach_attempt WHERE entry_id = ANY(ARRAY(SELECT id FROM old)) RETURNING 1)",
)
# An entry that is not Done keeps its events: they are its life.
_EVENTS = _walk(
    "snapshot_detach_quarantined_event",
    """o.alerted_at < :before AND NOT EXISTS (
        SELECT FROM news.snapshot_detach_outbox e WHERE e.id = o.entry_id AND e.status <> 'Done'
    )""",
)
_RUNS = _walk("snapshot_detach_run", "coalesce(o.ended_at, o.started_at) < :before")
_PLANS = _walk("snapshot_detach_requeue", "o.ended_at < :before")
_AUDIT = _walk("snapshot_detach_audit", "o.occurred_at < :before")

# Their ids say nothing of time; the queue's own index by state and time does.
_MESSAGES = text("""
    WITH old AS MATERIALIZED (
        SELECT message_id FROM dramatiq.queue WHERE state = 'rejected' AND mtime < :before
        ORDER BY mtime LIMIT :size FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM dramatiq.queue WHERE message_id = ANY(ARRAY(SELECT message_id FROM old)) RETURNING 1
    )
    SELECT count(*) AS pruned, NULL::uuid AS place FROM gone
""")

_STATEMENTS = {
    Kind.DONE: _DONE,
    Kind.HISTORY: _HISTORY,
    Kind.EVENTS: _EVENTS,
    Kind.RUNS: _RUNS,
    Kind.PLANS: _PLANS,
    Kind.MESSAGES: _MESSAGES,
    Kind.AUDIT: _AUDIT,
}

_PLACE = text("SELECT place FROM news.snapshot_detach_retention WHERE kind = :kind")

_MOVE = text("""
    INSERT INTO news.snapshot_detach_retention (kind, place, moved_at) VALUES (:kind, :place, :now)
    ON CONFLICT (kind) DO UPDATE SET place = excluded.place, moved_at = excluded.moved_at
""")


def place(connection: Connection, kind: Kind) -> UUID:
    """Where the last run left off."""
    found = connection.execute(_PLACE, {"kind": kind.value}).scalar_one_or_none()
    return START if found is None else UUID(str(found))


def prune(connection: Connection, kind: Kind, *, before: datetime, after: UUID, size: int, now: datetime) -> Window:
    """Delete what was completed before that moment among the next `size` rows after `after`, and keep the place."""
    values = {"before": before, "bound": first_id(before), "place": after, "size": size}
    row = connection.execute(_STATEMENTS[kind], values).one()
    reached = START if row.place is None else UUID(str(row.place))
    if reached != after:
        connection.execute(_MOVE, {"kind": kind.value, "place": reached, "now": now})
    return Window(int(row.pruned), reached)


def first_id(moment: datetime) -> UUID:
    """The least id of version 7 that can be made at that moment: all earlier ones are below it."""
    return UUID(int=(int(moment.timestamp() * 1000) & (2**48 - 1)) << 80)
