"""Quarantine: the event that a move to it leaves, its alert, the operator's way back, the audit (J15, G9, G21)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox.intents import COLUMNS, entry_of
from db.runner.gate import ALERT_QUEUE
from pin.rules.outbox import Entry


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """`SnapshotDetachQuarantinedEvent` (J15) as it is kept."""

    id: UUID
    entry_id: UUID
    snapshot_id: UUID
    post_id: UUID
    reason: str
    attempts: int
    last_error: str | None
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class QuarantinedEntry:
    """One row of the operator's list."""

    entry: Entry
    last_error: str | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class QuarantinedGroup:
    """The quarantined entries with one fingerprint: `error` is class and code, None where none is known (J14)."""

    error: str | None
    count: int
    first_at: datetime
    last_at: datetime
    sample: UUID
    """The entry that is quarantined longest."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what to which entry, and why. Both ids are None where it is about no one entry."""

    id: UUID
    entry_id: UUID | None
    snapshot_id: UUID | None
    actor: str
    action: str
    reason: str
    details: Mapping[str, Any]


_EVENTS = text("""
    INSERT INTO news.snapshot_detach_quarantined_event
        (id, entry_id, snapshot_id, post_id, reason, attempts, last_error, occurred_at)
    SELECT id, entry_id, snapshot_id, post_id, reason, attempts, last_error, :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:entry_ids AS uuid[]), CAST(:snapshot_ids AS uuid[]), CAST(:post_ids AS uuid[]),
        CAST(:reasons AS text[]), CAST(:attempts AS integer[]), CAST(:errors AS text[])
    ) AS e (id, entry_id, snapshot_id, post_id, reason, attempts, last_error)
""")

_UNTOLD = text("""
    SELECT id, entry_id, snapshot_id, post_id, reason, attempts, last_error, occurred_at, told
    FROM news.snapshot_detach_quarantined_event
    WHERE id = ANY(CAST(:ids AS uuid[])) AND alerted_at IS NULL
    ORDER BY id
""")

_ALERTED = text("""
    UPDATE news.snapshot_detach_quarantined_event SET alerted_at = :now
    WHERE id = ANY(CAST(:ids AS uuid[])) AND alerted_at IS NULL AND told @> CAST(:sinks AS varchar[])
""")

_TOLD = text("""
    UPDATE news.snapshot_detach_quarantined_event SET told = array_append(told, CAST(:sink AS varchar))
    WHERE id = ANY(CAST(:ids AS uuid[])) AND NOT (:sink = ANY(told))
""")

_COUNT_UNTOLD = text("SELECT count(*) FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL")

_SILENT = text("""
    SELECT id FROM news.snapshot_detach_quarantined_event
    WHERE alerted_at IS NULL AND occurred_at < :before AND NOT EXISTS (
        SELECT FROM dramatiq.queue WHERE queue_name = :queue AND state IN ('queued', 'consumed')
    )
    ORDER BY id LIMIT 100
""")

_REQUEUE = text("""
    UPDATE news.snapshot_detach_outbox SET
        status = 'Pending', attempts = 0, version = version + 1, next_attempt_at = :now, outcome_due = false,
        updated_at = :now
    WHERE id = ANY(CAST(:ids AS uuid[])) AND status = 'Quarantined'
    RETURNING id
""")

_LOCK = text(f"""
    SELECT {COLUMNS}, last_error FROM news.snapshot_detach_outbox
    WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id FOR UPDATE
""")

_LOCK_FREE = text(f"{_LOCK.text} SKIP LOCKED")

_LIST = text(f"""
    SELECT {COLUMNS}, last_error, updated_at FROM news.snapshot_detach_outbox
    WHERE status = 'Quarantined' ORDER BY updated_at, id LIMIT :limit
""")

_GROUPS = text("""
    SELECT last_error AS error, count(*) AS count, min(updated_at) AS first_at, max(updated_at) AS last_at,
        (array_agg(id ORDER BY updated_at, id))[1] AS sample
    FROM news.snapshot_detach_outbox WHERE status = 'Quarantined'
    GROUP BY last_error ORDER BY count DESC, error
""")

_AUDIT = text("""
    INSERT INTO news.snapshot_detach_audit
        (id, entry_id, snapshot_id, actor, action, reason, details, occurred_at)
    SELECT id, entry_id, snapshot_id, actor, action, reason, CAST(details AS jsonb), :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:entry_ids AS uuid[]), CAST(:snapshot_ids AS uuid[]), CAST(:actors AS text[]),
        CAST(:actions AS text[]), CAST(:reasons AS text[]), CAST(:details AS text[])
    ) AS a (id, entry_id, snapshot_id, actor, action, reason, details)
""")


def write_events(connection: Connection, events: Sequence[QuarantinedEvent], now: datetime) -> None:
    """Keep the events in the transaction that quarantines; one statement."""
    if not events:
        return
    connection.execute(
        _EVENTS,
        {
            "ids": [event.id for event in events],
            "entry_ids": [event.entry_id for event in events],
            "snapshot_ids": [event.snapshot_id for event in events],
            "post_ids": [event.post_id for event in events],
            "reasons": [event.reason for event in events],
            "attempts": [event.attempts for event in events],
            "errors": [event.last_error for event in events],
            "now": now,
        },
    )


def untold(connection: Connection, event_ids: Sequence[UUID]) -> list[tuple[QuarantinedEvent, frozenset[str]]]:
    """Those of these events that some sink has not been told of, each with the sinks that have."""
    rows = connection.execute(_UNTOLD, {"ids": list(event_ids)})
    return [(QuarantinedEvent(*row[:-1]), frozenset(row.told)) for row in rows]


def count_untold(connection: Connection) -> int:
    """How many events some sink has not been told of."""
    return int(connection.execute(_COUNT_UNTOLD).scalar_one())


def mark_told(connection: Connection, event_ids: Sequence[UUID], sink: str) -> None:
    """Note that this sink has been told of them: it will not be again."""
    connection.execute(_TOLD, {"ids": list(event_ids), "sink": sink})


def mark_alerted(connection: Connection, event_ids: Sequence[UUID], sinks: Sequence[str], now: datetime) -> None:
    """The alert has been raised of those that each of `sinks` was told of; a repeated message raises none again."""
    connection.execute(_ALERTED, {"ids": list(event_ids), "sinks": list(sinks), "now": now})


def silent_events(connection: Connection, *, before: datetime) -> list[UUID]:
    """Events older than `before` not told to every sink though no alert waits: a lost message, a sink that was down."""
    return [row.id for row in connection.execute(_SILENT, {"before": before, "queue": ALERT_QUEUE})]


def lock_entries(
    connection: Connection, ids: Sequence[UUID], *, skip_locked: bool = False
) -> dict[UUID, tuple[Entry, str | None]]:
    """The entries with their last_error, row-locked in id order (G21); without those that others hold if asked so."""
    rows = connection.execute(_LOCK_FREE if skip_locked else _LOCK, {"ids": sorted(ids)})
    return {row.id: (entry_of(row), row.last_error) for row in rows}


def requeue(connection: Connection, ids: Sequence[UUID], now: datetime) -> set[UUID]:
    """Quarantined to Pending, attempts 0, due now; only `where status = 'Quarantined'` (G21). Answers which moved."""
    return {row.id for row in connection.execute(_REQUEUE, {"ids": list(ids), "now": now})}


def list_quarantined(connection: Connection, limit: int) -> list[QuarantinedEntry]:
    """The quarantined entries, longest quarantined first, at most `limit`."""
    rows = connection.execute(_LIST, {"limit": limit})
    return [QuarantinedEntry(entry_of(row), row.last_error, row.updated_at) for row in rows]


def groups(connection: Connection) -> list[QuarantinedGroup]:
    """The quarantined entries by what they failed with, the largest group first."""
    return [QuarantinedGroup(*row) for row in connection.execute(_GROUPS)]


def write_audit(connection: Connection, rows: Sequence[AuditRow], now: datetime) -> None:
    """Keep who did what and why, in the transaction that does it; one statement."""
    if not rows:
        return
    connection.execute(
        _AUDIT,
        {
            "ids": [row.id for row in rows],
            "entry_ids": [row.entry_id for row in rows],
            "snapshot_ids": [row.snapshot_id for row in rows],
            "actors": [row.actor[:128] for row in rows],
            "actions": [row.action for row in rows],
            "reasons": [row.reason[:512] for row in rows],
            "details": [json.dumps(dict(row.details)) for row in rows],
            "now": now,
        },
    )
