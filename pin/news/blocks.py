"""What a request wants a post to show, and the snapshots made for it under guard intents (G13, G14)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from uuid import UUID

from sqlalchemy import Connection

from db.errors import transact
from db.news import Block
from db.outbox.intents import Intent, remove_guards, stage
from pin.news.desk import Author, Desk
from pin.news.errors import SelectionNotFound, SnapshotNotShown, SnapshotTwice, SwitchRefused
from pin.outgoing.selections import SelectionsUnavailable, SnapshotRefused
from pin.rules.contract import CreateSnapshotRequest, ErrorCode, Reason


@dataclass(frozen=True, slots=True)
class Text:
    """A block of text."""

    body: str


@dataclass(frozen=True, slots=True)
class NewEmbed:
    """A block that shows a snapshot to be taken of this selection now."""

    selection_id: UUID


@dataclass(frozen=True, slots=True)
class KeptEmbed:
    """A block that goes on showing a snapshot of the current version."""

    snapshot_id: UUID


Wanted = Text | NewEmbed | KeptEmbed


@dataclass(frozen=True, slots=True)
class Guarded:
    """The blocks to show, each with its snapshot; the new ones exist and are guarded by `guard_ids`."""

    blocks: tuple[Block, ...]
    guard_ids: tuple[UUID, ...]


def check_kept(wanted: Sequence[Wanted], shown: Iterable[Block]) -> None:
    """Raise unless every snapshot to be kept is one of `shown`, and kept by one block (G14).

    Raises SnapshotNotShown or SnapshotTwice, naming the block.
    """
    free = {block.snapshot_id for block in shown if block.snapshot_id}
    kept: set[UUID] = set()
    for position, block in enumerate(wanted):
        if isinstance(block, KeptEmbed):
            if block.snapshot_id in kept:
                raise SnapshotTwice(position)
            if block.snapshot_id not in free:
                raise SnapshotNotShown(position)
            kept.add(block.snapshot_id)


def create_guarded(desk: Desk, author: Author, post_id: UUID, wanted: Sequence[Wanted]) -> Guarded:
    """Take the snapshots that `wanted` asks for, each behind a guard intent committed before (G13).

    No connection is held during the calls. Raises SelectionsUnavailable, SelectionNotFound or SwitchRefused; the guards
    stay then, and detach whatever was or will be made.
    """
    blocks: list[Block] = []
    requests: list[CreateSnapshotRequest] = []
    positions: dict[UUID, int] = {}
    for position, block in enumerate(wanted):
        match block:
            case Text():
                blocks.append(Block(body=block.body))
            case KeptEmbed():
                blocks.append(Block(snapshot_id=block.snapshot_id))
            case NewEmbed():
                snapshot_id = desk.new_id()
                positions[snapshot_id] = position
                blocks.append(Block(snapshot_id=snapshot_id))
                requests.append(
                    CreateSnapshotRequest(
                        snapshot_id=snapshot_id,
                        selection_id=block.selection_id,
                        tenant_id=author.tenant_id,
                        requested_by_user_id=author.user_id,
                    )
                )
    guard_ids: tuple[UUID, ...] = ()
    if requests:
        guard_ids = _guard(desk, author, post_id, [request.snapshot_id for request in requests])
        _create(desk, requests, positions)
    return Guarded(tuple(blocks), guard_ids)


def lift_guards(connection: Connection, guarded: Guarded) -> None:
    """In the switch's transaction: the post shows the snapshots from now on (G13).

    Raises SwitchRefused, so that the transaction rolls back, when the job has touched a guard: its snapshot may be
    detached already.
    """
    if remove_guards(connection, guarded.guard_ids) != len(guarded.guard_ids):
        raise SwitchRefused("the request took too long and its new snapshots were given up; nothing has changed")


def _guard(desk: Desk, author: Author, post_id: UUID, snapshot_ids: Sequence[UUID]) -> tuple[UUID, ...]:
    now = desk.clock()
    due_at = now + desk.request_timeout
    guards = [
        Intent(desk.new_id(), snapshot_id, post_id, Reason.BLOCK_REPLACED, author.user_id, due_at, is_guard=True)
        for snapshot_id in snapshot_ids
    ]
    transact(desk.engine, lambda connection: stage(connection, guards, now))
    return tuple(guard.id for guard in guards)


def _create(desk: Desk, requests: Sequence[CreateSnapshotRequest], positions: dict[UUID, int]) -> None:
    deadline = monotonic() + desk.create_timeout.total_seconds()
    try:
        snapshots = desk.client.create_snapshots(requests, deadline=deadline)
    except SnapshotRefused as refused:
        match refused.code:
            case ErrorCode.SELECTIONS_SELECTION_NOT_FOUND:
                raise SelectionNotFound(positions[refused.snapshot_id]) from refused
            case ErrorCode.SELECTIONS_SNAPSHOT_ID_REFUSED:
                raise SwitchRefused("the request took too long; nothing has changed") from refused
            case _:
                raise SelectionsUnavailable(refused.code) from refused
    desk.contents.remember(snapshots)
