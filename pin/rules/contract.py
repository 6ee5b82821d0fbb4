"""What news and selections agree on: the routes, the reasons, the codes and the shapes of the internal API.

Both sides import this module and nothing of each other (docs/decisions). Names on the wire are camelCase.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import msgspec

NEWS_CLIENT = "news"
"""The m2m client id that policy InternalNewsOnly admits (D2, INV-SNP-003)."""

SNAPSHOTS_PATH = "/api/v1/internal/snapshots"
SNAPSHOTS_MOST = 1000
"""The largest page of list-snapshots."""
SNAPSHOT_PATH = SNAPSHOTS_PATH + "/{id}"
DETACH_PATH = SNAPSHOT_PATH + "/detach"

MESSAGE_BAD_REQUEST = "Некорректный запрос"
MESSAGE_SNAPSHOT_NOT_FOUND = "Snapshot не найден"


class Reason(StrEnum):
    """`SnapshotDetachReason`: why a snapshot is no longer shown (J9, D3). Stored as text."""

    BLOCK_REPLACED = "BlockReplaced"
    POST_DELETED = "PostDeleted"


class SnapshotStatus(StrEnum):
    """What the internal API says of a snapshot."""

    ACTIVE = "Active"
    DETACHED = "Detached"


class ErrorCode(StrEnum):
    """The `code` of a problem; a client may branch on it, on nothing else."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    PRECONDITION_REQUIRED = "PRECONDITION_REQUIRED"
    PRECONDITION_FAILED = "PRECONDITION_FAILED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    UNAVAILABLE = "UNAVAILABLE"
    SELECTIONS_SNAPSHOT_NOT_FOUND = "SELECTIONS_SNAPSHOT_NOT_FOUND"
    SELECTIONS_SNAPSHOT_ID_REFUSED = "SELECTIONS_SNAPSHOT_ID_REFUSED"
    SELECTIONS_SNAPSHOT_ID_CONFLICT = "SELECTIONS_SNAPSHOT_ID_CONFLICT"
    SELECTIONS_SELECTION_NOT_FOUND = "SELECTIONS_SELECTION_NOT_FOUND"
    NEWS_POST_NOT_FOUND = "NEWS_POST_NOT_FOUND"
    NEWS_POST_STATE_CONFLICT = "NEWS_POST_STATE_CONFLICT"
    NEWS_SNAPSHOT_NOT_SHOWN = "NEWS_SNAPSHOT_NOT_SHOWN"
    NEWS_SELECTIONS_UNAVAILABLE = "NEWS_SELECTIONS_UNAVAILABLE"
    NEWS_SWITCH_REFUSED = "NEWS_SWITCH_REFUSED"


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A request: camelCase, unknown fields refused."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A response: camelCase; a reader ignores fields it does not know, so that adding one breaks nobody."""


class Problem(Answer, frozen=True):
    """`application/problem+json` (RFC 9457) with the contract's `code`."""

    type: str
    title: str
    status: int
    code: str
    detail: str | None = None
    instance: str | None = None
    errors: list[dict[str, Any]] | None = None


class DetachRequest(Wire, frozen=True):
    """Body of detach (D3, G1)."""

    reason: Reason
    requested_by_user_id: UUID


class DetachSelectionSnapshotResult(Answer, frozen=True):
    """Answer of detach (D5): the moment and the reason are those of the first detach."""

    snapshot_id: UUID
    status: Literal["Detached"]
    detached_at: datetime
    detach_reason: str
    """As it was stored, a newer release's as well (G26)."""


class DetachConfirmed(Answer, frozen=True):
    """What news needs of detach's answer, and no more: this snapshot, Detached (G4, G26)."""

    snapshot_id: UUID
    status: Literal["Detached"]


class CreateSnapshotRequest(Wire, frozen=True):
    """Body of create-selection-snapshot (G12). The caller chooses the id, so that a repeat is the same snapshot (G13).

    `tenantId` is the post's: a selection of another tenant is answered as if it did not exist.
    """

    snapshot_id: UUID
    selection_id: UUID
    tenant_id: UUID
    requested_by_user_id: UUID


class SnapshotContent(Answer, frozen=True):
    """What a snapshot shows; fixed when it is taken (INV-SEL-001)."""

    selection_id: UUID
    title: str
    items: list[str]
    taken_at: datetime


class Snapshot(Answer, frozen=True):
    """Answer of create- and get-selection-snapshot, in any status (G12, INV-SNP-006)."""

    snapshot_id: UUID
    selection_id: UUID
    status: str
    """A `SnapshotStatus`, or what a newer release says (G26)."""
    content: SnapshotContent
    created_at: datetime
    detached_at: datetime | None = None
    detach_reason: str | None = None


class SnapshotSummary(Answer, frozen=True):
    """A snapshot without its content, as a list has it."""

    snapshot_id: UUID
    status: str
    """A `SnapshotStatus`, or what a newer release says (G26)."""
    created_at: datetime
    detached_at: datetime | None = None
    detach_reason: str | None = None


class SnapshotPage(Answer, frozen=True):
    """Answer of list-snapshots: in the order of their ids. `next` is the `after` of the page that follows, if any."""

    snapshots: list[SnapshotSummary]
    next: UUID | None = None
