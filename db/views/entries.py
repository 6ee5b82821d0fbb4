"""Reading entries for people: search by key pages, counts by state, and one entry's whole life."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.engine import Row

from db.outbox.intents import COLUMNS, entry_of
from pin.rules.outbox import Entry, Status

COUNT_UP_TO = 10_000
"""Counts of a state end here: whoever reads them need not wait for a table's whole length."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry with all its columns."""

    entry: Entry
    last_error: str | None
    outcome_due: bool
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Condition:
    """Part of a WHERE clause, a constant of this code's, and the values bound in it."""

    sql: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One answer to a call, as history keeps it."""

    entry_id: UUID
    entry_version: int
    attempt: int
    run_id: UUID | None
    outcome: str
    error: str | None
    http_status: int | None
    duration_ms: int
    worker: str
    trace_id: str | None
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class EventRow:
    """One move to Quarantined (J15)."""

    attempts: int
    last_error: str | None
    occurred_at: datetime
    alerted_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what and why. `entry_id` and `snapshot_id` are None where it was about no one entry."""

    id: UUID
    entry_id: UUID | None
    snapshot_id: UUID | None
    actor: str
    action: str
    reason: str
    details: Mapping[str, Any]
    occurred_at: datetime


OF_SNAPSHOT = "(snapshot_id = :snapshot AND status <> 'Done' OR snapshot_id = :snapshot AND status = 'Done')"
"""The entries of a snapshot, said so that both partial indexes serve it."""

_STORED = f"{COLUMNS}, last_error, outcome_due, updated_at"

_ONE = text(f"SELECT {_STORED} FROM news.snapshot_detach_outbox WHERE id = :id")

_OF_POST = text(f"""
    SELECT {_STORED} FROM news.snapshot_detach_outbox WHERE post_id = :id ORDER BY created_at DESC, id DESC LIMIT :limit
""")

_OF_SNAPSHOT = text(f"""
    SELECT {_STORED} FROM news.snapshot_detach_outbox
    WHERE {OF_SNAPSHOT} ORDER BY created_at DESC, id DESC LIMIT :limit
""")

_ATTEMPT = (
    "entry_id, entry_version, attempt, run_id, outcome, error, http_status, duration_ms, worker, trace_id, recorded_at"
)

_ATTEMPTS = text(f"SELECT {_ATTEMPT} FROM news.snapshot_detach_attempt WHERE entry_id = :id ORDER BY id")

_OF_RUN = text(f"""
    SELECT {_ATTEMPT} FROM news.snapshot_detach_attempt WHERE run_id = :id ORDER BY id DESC LIMIT :limit
""")

_EVENTS = text("""
    SELECT attempts, last_error, occurred_at, alerted_at
    FROM news.snapshot_detach_quarantined_event WHERE entry_id = :id ORDER BY occurred_at, id
""")

_AUDIT = "id, entry_id, snapshot_id, actor, action, reason, details, occurred_at"

_AUDIT_OF_ENTRY = text(f"""
    SELECT {_AUDIT} FROM news.snapshot_detach_audit WHERE entry_id = :id ORDER BY occurred_at, id
""")


def page(
    connection: Connection, conditions: Sequence[Condition], *, after: tuple[datetime, UUID] | None, limit: int
) -> list[StoredEntry]:
    """Entries that meet all conditions, newest first by their ids (version 7), those after the key given."""
    where, values = _where(conditions)
    if after is not None:
        where += " AND id < CAST(:after_id AS uuid)"
        values |= {"after_id": after[1]}
    statement = text(f"""
        SELECT {_STORED} FROM news.snapshot_detach_outbox WHERE {where} ORDER BY id DESC LIMIT :limit
    """)
    return [_stored(row) for row in connection.execute(statement, values | {"limit": limit})]


def counts(connection: Connection, conditions: Sequence[Condition]) -> dict[str, int]:
    """How many entries of each state meet all conditions; COUNT_UP_TO + 1 stands for more."""
    where, values = _where(conditions)
    parts = [
        f"(SELECT count(*) FROM (SELECT FROM news.snapshot_detach_outbox"
        f" WHERE status = '{status.value}' AND {where} LIMIT {COUNT_UP_TO + 1}) AS counted) AS n{number}"
        for number, status in enumerate(Status)
    ]
    row = connection.execute(text(f"SELECT {', '.join(parts)}"), values).one()
    return {status.value: row[number] for number, status in enumerate(Status)}


def one(connection: Connection, entry_id: UUID) -> StoredEntry | None:
    """The entry, None where there is no such one."""
    row = connection.execute(_ONE, {"id": entry_id}).one_or_none()
    return _stored(row) if row else None


def of_post(connection: Connection, post_id: UUID, limit: int) -> list[StoredEntry]:
    """The entries of a post, newest first."""
    return [_stored(row) for row in connection.execute(_OF_POST, {"id": post_id, "limit": limit})]


def of_snapshot(connection: Connection, snapshot_id: UUID, limit: int) -> list[StoredEntry]:
    """The entries of a snapshot, newest first; at most one of them is not Done."""
    return [_stored(row) for row in connection.execute(_OF_SNAPSHOT, {"snapshot": snapshot_id, "limit": limit})]


def attempts(connection: Connection, entry_id: UUID) -> list[AttemptRow]:
    """Every answer to a call for the entry, oldest first."""
    return [AttemptRow(*row) for row in connection.execute(_ATTEMPTS, {"id": entry_id})]


def attempts_of_run(connection: Connection, run_id: UUID, limit: int) -> list[AttemptRow]:
    """The attempts of a run, the latest first."""
    return [AttemptRow(*row) for row in connection.execute(_OF_RUN, {"id": run_id, "limit": limit})]


def events(connection: Connection, entry_id: UUID) -> list[EventRow]:
    """The entry's moves to Quarantined, oldest first."""
    return [EventRow(*row) for row in connection.execute(_EVENTS, {"id": entry_id})]


def audit_of(connection: Connection, entry_id: UUID) -> list[AuditEntry]:
    """What people did to the entry, oldest first."""
    return [AuditEntry(*row) for row in connection.execute(_AUDIT_OF_ENTRY, {"id": entry_id})]


def audit_page(
    connection: Connection, conditions: Sequence[Condition], *, after: tuple[datetime, UUID] | None, limit: int
) -> list[AuditEntry]:
    """The audit, newest first, after the (occurred_at, id) given."""
    where, values = _where(conditions)
    if after is not None:
        where += " AND (occurred_at, id) < (:after_at, CAST(:after_id AS uuid))"
        values |= {"after_at": after[0], "after_id": after[1]}
    statement = text(f"""
        SELECT {_AUDIT} FROM news.snapshot_detach_audit WHERE {where} ORDER BY occurred_at DESC, id DESC LIMIT :limit
    """)
    return [AuditEntry(*row) for row in connection.execute(statement, values | {"limit": limit})]


def _where(conditions: Sequence[Condition]) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    for condition in conditions:
        values |= condition.values
    return " AND ".join(["true", *(condition.sql for condition in conditions)]), values


def _stored(row: Row[Any]) -> StoredEntry:
    return StoredEntry(entry_of(row), row.last_error, row.outcome_due, row.updated_at)
