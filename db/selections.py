"""Storage of selections, their snapshots and the facts about them. Each verb is one statement on a given connection.

    (none)      create_snapshot   -> Active       content copied from the selection, for good
    (none)      leave_tombstone   -> Tombstone    the id is refused for ever (G13)
    Active      detach            -> Detached     with its event, in one statement (D6)

Tombstone and Detached are final; the database's triggers hold all of this against any other statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Connection, Row, text

from pin.rules.contract import Reason, SnapshotContent, SnapshotSummary
from pin.rules.reading import known


class SnapshotRowStatus(StrEnum):
    """What a row of `selections.snapshot` is. A tombstone is no snapshot: it never leaves this package as one."""

    ACTIVE = "Active"
    DETACHED = "Detached"
    TOMBSTONE = "Tombstone"


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection as it stands. `revision` is raised by each change."""

    id: UUID
    tenant_id: UUID
    owner_id: UUID
    title: str
    items: tuple[str, ...]
    revision: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """What detach needs to know of a row: everything but its content, which it does not read (D9)."""

    id: UUID
    status: SnapshotRowStatus | str
    version: int
    detached_at: datetime | None
    detach_reason: str | None


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot with its content: Active or Detached."""

    id: UUID
    selection_id: UUID
    status: SnapshotRowStatus | str
    content: SnapshotContent
    created_at: datetime
    detached_at: datetime | None
    detach_reason: str | None


_SELECTION = "id, tenant_id, owner_id, title, items::text AS items, revision, created_at, updated_at"

_INSERT_SELECTION = text(f"""
    INSERT INTO selections.selection (id, tenant_id, owner_id, title, items, created_at, updated_at)
    VALUES (:id, :tenant_id, :owner_id, :title, CAST(:items AS jsonb), :now, :now)
    RETURNING {_SELECTION}
""")
_READ_SELECTION = text(f"SELECT {_SELECTION} FROM selections.selection WHERE id = :id AND tenant_id = :tenant_id")
_LOCK_SELECTION = text(f"{_READ_SELECTION.text} FOR UPDATE")
_EDIT_SELECTION = text(f"""
    UPDATE selections.selection
    SET title = :title, items = CAST(:items AS jsonb), revision = revision + 1, updated_at = :now
    WHERE id = :id AND revision = :revision
    RETURNING {_SELECTION}
""")
_CREATE_SNAPSHOT = text("""
    INSERT INTO selections.snapshot (id, status, selection_id, content, requested_by_user_id, created_at, updated_at)
    SELECT :id, 'Active', s.id,
           jsonb_build_object(
               'selectionId', s.id, 'title', s.title, 'items', s.items, 'takenAt', CAST(:now AS timestamptz)),
           :requested_by_user_id, :now, :now
    FROM selections.selection s
    WHERE s.id = :selection_id AND s.tenant_id = :tenant_id
    ON CONFLICT (id) DO NOTHING
    RETURNING id
""")
_READ_SNAPSHOT = text("""
    SELECT id, selection_id, status, content::text AS content, created_at, detached_at, detach_reason
    FROM selections.snapshot WHERE id = :id AND status <> 'Tombstone'
""")
_LIST_SNAPSHOTS = text("""
    SELECT id, status, created_at, detached_at, detach_reason FROM selections.snapshot
    WHERE status <> 'Tombstone' AND (CAST(:after AS uuid) IS NULL OR id > :after) ORDER BY id LIMIT :limit
""")
_READ_STATE = text("SELECT id, status, version, detached_at, detach_reason FROM selections.snapshot WHERE id = :id")
_LEAVE_TOMBSTONE = text("""
    INSERT INTO selections.snapshot (id, status, created_at, updated_at) VALUES (:id, 'Tombstone', :now, :now)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
""")
_DETACH = text("""
    WITH detached AS (
        UPDATE selections.snapshot
        SET status = 'Detached', detached_at = :now, detach_reason = :reason, updated_at = :now, version = version + 1
        WHERE id = :id AND status = 'Active' AND version = :version
        RETURNING id, detached_at, detach_reason
    )
    INSERT INTO selections.snapshot_detached_event (snapshot_id, event_id, reason, requested_by_user_id, occurred_at)
    SELECT id, :event_id, detach_reason, :requested_by_user_id, detached_at FROM detached
    RETURNING occurred_at
""")


def insert_selection(
    connection: Connection,
    *,
    selection_id: UUID,
    tenant_id: UUID,
    owner_id: UUID,
    title: str,
    items: Sequence[str],
    now: datetime,
) -> Selection:
    """A new selection, at revision 1."""
    values = {"id": selection_id, "tenant_id": tenant_id, "owner_id": owner_id, "title": title, "now": now}
    return _selection(connection.execute(_INSERT_SELECTION, values | {"items": _json(items)}).one())


def read_selection(connection: Connection, selection_id: UUID, tenant_id: UUID) -> Selection | None:
    """The selection, None when the tenant has no such one."""
    row = connection.execute(_READ_SELECTION, {"id": selection_id, "tenant_id": tenant_id}).one_or_none()
    return _selection(row) if row else None


def lock_selection(connection: Connection, selection_id: UUID, tenant_id: UUID) -> Selection | None:
    """As `read_selection`, and nobody else changes it until the transaction ends."""
    row = connection.execute(_LOCK_SELECTION, {"id": selection_id, "tenant_id": tenant_id}).one_or_none()
    return _selection(row) if row else None


def edit_selection(
    connection: Connection, seen: Selection, *, title: str, items: Sequence[str], now: datetime
) -> Selection | None:
    """The selection with another title and items; None when it is no longer at the revision seen."""
    values = {"id": seen.id, "revision": seen.revision, "title": title, "items": _json(items), "now": now}
    row = connection.execute(_EDIT_SELECTION, values).one_or_none()
    return _selection(row) if row else None


def create_snapshot(
    connection: Connection,
    *,
    snapshot_id: UUID,
    selection_id: UUID,
    tenant_id: UUID,
    requested_by_user_id: UUID,
    now: datetime,
) -> bool:
    """Copy the selection as it stands into a new Active snapshot.

    False when nothing was made: the tenant has no such selection, or the id is taken (by a snapshot or a tombstone;
    one that another transaction is just making is waited for, G13).
    """
    values = {
        "id": snapshot_id,
        "selection_id": selection_id,
        "tenant_id": tenant_id,
        "requested_by_user_id": requested_by_user_id,
        "now": now,
    }
    return connection.execute(_CREATE_SNAPSHOT, values).one_or_none() is not None


def read_snapshot(connection: Connection, snapshot_id: UUID) -> StoredSnapshot | None:
    """The snapshot in any status with its content (INV-SNP-006); None for an unknown id and for a tombstone."""
    row = connection.execute(_READ_SNAPSHOT, {"id": snapshot_id}).one_or_none()
    if row is None:
        return None
    return StoredSnapshot(
        id=row.id,
        selection_id=row.selection_id,
        status=known(SnapshotRowStatus, row.status),
        content=msgspec.json.decode(row.content, type=SnapshotContent),
        created_at=row.created_at,
        detached_at=row.detached_at,
        detach_reason=row.detach_reason,
    )


def list_snapshots(connection: Connection, after: UUID | None, limit: int) -> list[SnapshotSummary]:
    """The snapshots after that id, in the order of their ids; tombstones are none."""
    return [
        SnapshotSummary(
            snapshot_id=row.id,
            status=row.status,
            created_at=row.created_at,
            detached_at=row.detached_at,
            detach_reason=row.detach_reason,
        )
        for row in connection.execute(_LIST_SNAPSHOTS, {"after": after, "limit": limit})
    ]


def read_state(connection: Connection, snapshot_id: UUID) -> SnapshotState | None:
    """The row without its content, tombstones included; None for an id that nobody has named yet."""
    row = connection.execute(_READ_STATE, {"id": snapshot_id}).one_or_none()
    if row is None:
        return None
    reason = row.detach_reason
    return SnapshotState(row.id, known(SnapshotRowStatus, row.status), row.version, row.detached_at, reason)


def leave_tombstone(connection: Connection, snapshot_id: UUID, now: datetime) -> bool:
    """Refuse the id for ever. False when it is taken by now: read it again (G13)."""
    return connection.execute(_LEAVE_TOMBSTONE, {"id": snapshot_id, "now": now}).one_or_none() is not None


def detach(
    connection: Connection,
    seen: SnapshotState,
    *,
    reason: Reason,
    requested_by_user_id: UUID,
    event_id: UUID,
    now: datetime,
) -> datetime | None:
    """Active to Detached with its SelectionSnapshotDetachedEvent, one statement (D6). Answers detached_at.

    None when the snapshot is no longer Active at the version seen: another detach won, nothing was changed (D8).
    """
    values = {
        "id": seen.id,
        "version": seen.version,
        "reason": reason.value,
        "requested_by_user_id": requested_by_user_id,
        "event_id": event_id,
        "now": now,
    }
    row = connection.execute(_DETACH, values).one_or_none()
    return row.occurred_at if row else None


def _selection(row: Row[Any]) -> Selection:
    items = tuple(msgspec.json.decode(row.items, type=list[str]))
    return Selection(
        row.id, row.tenant_id, row.owner_id, row.title, items, row.revision, row.created_at, row.updated_at
    )


def _json(items: Sequence[str]) -> str:
    return msgspec.json.encode(list(items)).decode()
