"""Quarantine: the operator's list and way back, and the audit (J29, G9, G21). Its events: db.outbox.alerts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox.intents import COLUMNS, entry_of
from pin.rules.outbox import Entry


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
