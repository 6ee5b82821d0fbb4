"""The owner's half of a detach: the intent inside the change, the first attempt after it (J18, J19, G8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from uuid import UUID

from sqlalchemy import Connection

from db.news import Post
from db.outbox.intents import Intent, stage
from pin.news.desk import Desk
from pin.rules.contract import Reason
from pin.rules.outbox import Entry
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Staged:
    """Intents written by an open transaction. `deadline` is the monotonic moment at which they become due (G8)."""

    entries: tuple[Entry, ...]
    met_active: tuple[UUID, ...]
    deadline: float


def stage_detach(
    desk: Desk, connection: Connection, post: Post, snapshot_ids: Sequence[UUID], reason: Reason, user_id: UUID
) -> Staged:
    """Write an intent for each snapshot, in the transaction that stops showing it (J18)."""
    now, deadline = desk.clock(), monotonic() + desk.detach_call_timeout.total_seconds()
    due_at = now + desk.detach_call_timeout
    intents = [Intent(desk.new_id(), snapshot_id, post.id, reason, user_id, due_at) for snapshot_id in snapshot_ids]
    entries = stage(connection, intents, now)
    made = {entry.snapshot_id for entry in entries}
    met_active = tuple(snapshot_id for snapshot_id in snapshot_ids if snapshot_id not in made)
    return Staged(tuple(entries), met_active, deadline)


def first_attempts(desk: Desk, post: Post, staged: Staged) -> None:
    """Once the change has committed: call selections for what was staged. Best effort, and never raises (J19).

    An intent that met an active one is a fault elsewhere, for a snapshot belongs to one post and leaves it once: it is
    logged and counted, and the change stands (G14).
    """
    for snapshot_id in staged.met_active:
        metrics.STAGING_CONFLICTS.inc()
        _log.error("staging conflict", snapshotId=str(snapshot_id), postId=str(post.id))
    if not staged.entries:
        return
    try:
        desk.first_attempts(staged.entries, staged.deadline)
    except Exception:  # noqa: BLE001 - the change is committed: nothing after it may fail the request (J19)
        _log.exception("first attempts failed", postId=str(post.id), entries=len(staged.entries))
