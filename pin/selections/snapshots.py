"""Use cases of the selections context: edit a selection, take a snapshot of it, detach a snapshot (D1–D14, G12, G13).

Each use case is one transaction. Its refusals:

    SelectionsError
      SelectionNotFoundError    the tenant has no such selection
      NotOwnerError             another user of the tenant owns it
      StaleRevisionError        it has changed since the caller saw it
      SnapshotNotFoundError     no such snapshot: never was, and by the tombstone left never will be
      SnapshotIdRefusedError    the id was once answered 'not found' (G13)
      SnapshotIdConflictError   the id is a snapshot of another selection
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from db import selections as store
from db.errors import transact
from db.selections import Selection, SnapshotRowStatus, SnapshotState, StoredSnapshot
from pin.rules.contract import CreateSnapshotRequest, Reason, SnapshotPage
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.SNAPSHOT_DETACHED, [reason.value for reason in Reason], ["true", "false"])


class SelectionsError(Exception):
    """A refusal of this context."""


class SelectionNotFoundError(SelectionsError):
    """The tenant has no such selection."""


class NotOwnerError(SelectionsError):
    """Only the owner changes a selection."""


class StaleRevisionError(SelectionsError):
    """The selection has changed since the caller saw it."""


class SnapshotNotFoundError(SelectionsError):
    """There is no such snapshot."""


class SnapshotIdRefusedError(SelectionsError):
    """A tombstone stands under this id: it was answered 'not found' once and stays so (G13)."""


class SnapshotIdConflictError(SelectionsError):
    """The id is already a snapshot of another selection."""


@dataclass(frozen=True, slots=True)
class Detached:
    """A snapshot after detach: moment and reason of the first one (D5). `noop`: it had been detached before (D7)."""

    snapshot_id: UUID
    detached_at: datetime
    reason: str
    noop: bool


def create_selection(
    engine: Engine,
    *,
    selection_id: UUID,
    tenant_id: UUID,
    owner_id: UUID,
    title: str,
    items: Sequence[str],
    now: datetime,
) -> Selection:
    """A new selection of the caller."""
    return transact(
        engine,
        lambda connection: store.insert_selection(
            connection,
            selection_id=selection_id,
            tenant_id=tenant_id,
            owner_id=owner_id,
            title=title,
            items=items,
            now=now,
        ),
    )


def get_selection(engine: Engine, selection_id: UUID, tenant_id: UUID) -> Selection:
    """The tenant's selection. Raises SelectionNotFoundError."""
    with engine.begin() as connection:
        found = store.read_selection(connection, selection_id, tenant_id)
    if found is None:
        raise SelectionNotFoundError
    return found


def edit_selection(
    engine: Engine,
    selection_id: UUID,
    *,
    tenant_id: UUID,
    user_id: UUID,
    expected: Callable[[int], bool],
    title: str,
    items: Sequence[str],
    now: datetime,
) -> Selection:
    """Change a selection whose revision is as `expected`; snapshots taken of it stay as they are (INV-SEL-001).

    Raises SelectionNotFoundError, NotOwnerError or StaleRevisionError, checked in this order.
    """

    def edit(connection: Connection) -> Selection | None:
        seen = store.lock_selection(connection, selection_id, tenant_id)
        if seen is None:
            raise SelectionNotFoundError
        if seen.owner_id != user_id:
            raise NotOwnerError
        if not expected(seen.revision):
            raise StaleRevisionError
        return store.edit_selection(connection, seen, title=title, items=items, now=now)

    edited = transact(engine, edit)
    if edited is None:
        raise StaleRevisionError
    return edited


def create_snapshot(engine: Engine, request: CreateSnapshotRequest, now: datetime) -> tuple[StoredSnapshot, bool]:
    """The snapshot under the id that the caller chose, and whether it was made just now (G12).

    A repeat, also of one detached since, answers the snapshot as it stands. Raises SnapshotIdRefusedError (G13),
    SnapshotIdConflictError or SelectionNotFoundError.
    """

    def create(connection: Connection) -> tuple[StoredSnapshot, bool]:
        made = store.create_snapshot(
            connection,
            snapshot_id=request.snapshot_id,
            selection_id=request.selection_id,
            tenant_id=request.tenant_id,
            requested_by_user_id=request.requested_by_user_id,
            now=now,
        )
        found = store.read_snapshot(connection, request.snapshot_id)
        if found is not None and found.selection_id != request.selection_id:
            raise SnapshotIdConflictError
        if found is None and store.read_state(connection, request.snapshot_id) is not None:
            raise SnapshotIdRefusedError
        if found is None or (not made and not _has_selection(connection, request)):
            raise SelectionNotFoundError
        return found, made

    return transact(engine, create)


def list_snapshots(engine: Engine, after: UUID | None, limit: int) -> SnapshotPage:
    """Up to `limit` snapshots after that id, without their content, in the order of their ids."""
    with engine.begin() as connection:
        found = store.list_snapshots(connection, after, limit + 1)
    shown = found[:limit]
    return SnapshotPage(snapshots=shown, next=shown[-1].snapshot_id if len(found) > limit else None)


def get_snapshot(engine: Engine, snapshot_id: UUID) -> StoredSnapshot:
    """The snapshot with its content, Active or Detached (INV-SNP-006). Raises SnapshotNotFoundError."""
    with engine.begin() as connection:
        found = store.read_snapshot(connection, snapshot_id)
    if found is None:
        raise SnapshotNotFoundError
    return found


def detach_snapshot(
    engine: Engine,
    snapshot_id: UUID,
    *,
    reason: Reason,
    requested_by_user_id: UUID,
    event_id: UUID,
    now: datetime,
) -> Detached:
    """Active to Detached, once; a repeat answers what the first one did (D6–D8, INV-SNP-005).

    Raises SnapshotNotFoundError, after a tombstone for the id has been committed: no later create can make it (G13).
    """

    def detach(connection: Connection) -> Detached | None:
        seen = _state_or_tombstone(connection, snapshot_id, now)
        return _detach(connection, seen, reason, requested_by_user_id, event_id, now) if seen else None

    done = transact(engine, detach)
    if done is None:
        raise SnapshotNotFoundError
    log.info(
        "snapshot detached",
        snapshotId=str(snapshot_id),
        reason=str(reason),
        requestedByUserId=str(requested_by_user_id),
        noop=done.noop,
    )
    metrics.SNAPSHOT_DETACHED.labels(reason=str(reason), idempotent_hit=str(done.noop).lower()).inc()
    return done


def _state_or_tombstone(connection: Connection, snapshot_id: UUID, now: datetime) -> SnapshotState | None:
    """The snapshot's state; None where a tombstone stands, which is left here for an id unknown until now."""
    seen = store.read_state(connection, snapshot_id)
    if seen is None and not store.leave_tombstone(connection, snapshot_id, now):
        seen = store.read_state(connection, snapshot_id)
    return None if seen is None or seen.status is SnapshotRowStatus.TOMBSTONE else seen


def _detach(
    connection: Connection, seen: SnapshotState, reason: Reason, user_id: UUID, event_id: UUID, now: datetime
) -> Detached:
    if seen.status is SnapshotRowStatus.ACTIVE:
        detached_at = store.detach(
            connection, seen, reason=reason, requested_by_user_id=user_id, event_id=event_id, now=now
        )
        if detached_at is not None:
            return Detached(seen.id, detached_at, reason, noop=False)
    return _as_it_stands(connection, seen)


def _as_it_stands(connection: Connection, seen: SnapshotState) -> Detached:
    """The idempotent branch; who lost a race comes here with a stale state, and reads once more (D8)."""
    state = store.read_state(connection, seen.id) if seen.status is SnapshotRowStatus.ACTIVE else seen
    if state is None or state.detached_at is None or state.detach_reason is None:
        raise AssertionError("only a detach ends the state Active, and no row goes away")
    return Detached(state.id, state.detached_at, state.detach_reason, noop=True)


def _has_selection(connection: Connection, request: CreateSnapshotRequest) -> bool:
    return store.read_selection(connection, request.selection_id, request.tenant_id) is not None
