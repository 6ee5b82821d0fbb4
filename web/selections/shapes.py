"""The selections API on the wire, beside `pin.rules.contract`: camelCase, unknown fields refused."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta

from db.selections import Selection, StoredSnapshot
from pin.rules.contract import Answer, DetachSelectionSnapshotResult, Snapshot, Wire
from pin.selections.snapshots import Detached

Title = Annotated[str, Meta(min_length=1, max_length=200)]
Item = Annotated[str, Meta(max_length=500)]
Items = Annotated[list[Item], Meta(max_length=500)]


class SelectionRequest(Wire, frozen=True):
    """Body of create and edit: the whole selection."""

    title: Title
    items: Items


class SelectionAnswer(Answer, frozen=True):
    """A selection; `revision` is what its ETag says."""

    id: UUID
    owner_id: UUID
    title: str
    items: list[str]
    revision: int
    created_at: datetime
    updated_at: datetime


def selection_answer(found: Selection) -> SelectionAnswer:
    """The selection for the wire."""
    return SelectionAnswer(
        id=found.id,
        owner_id=found.owner_id,
        title=found.title,
        items=list(found.items),
        revision=found.revision,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def snapshot_answer(found: StoredSnapshot) -> Snapshot:
    """The snapshot for the wire."""
    return Snapshot(
        snapshot_id=found.id,
        selection_id=found.selection_id,
        status=str(found.status),
        content=found.content,
        created_at=found.created_at,
        detached_at=found.detached_at,
        detach_reason=found.detach_reason,
    )


def detach_answer(done: Detached) -> DetachSelectionSnapshotResult:
    """The result of detach for the wire (D5)."""
    return DetachSelectionSnapshotResult(
        snapshot_id=done.snapshot_id, status="Detached", detached_at=done.detached_at, detach_reason=done.reason
    )
