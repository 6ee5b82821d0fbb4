"""`news.snapshot_detach_outbox`, the owner's side: stage intents, remove guards, read entries (J8, J18, G13).

Claiming is claim.py, outcomes are outcome.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.engine import Row

from pin.rules.contract import Reason
from pin.rules.outbox import Entry

COLUMNS = (
    "id, snapshot_id, post_id, reason, requested_by_user_id, status, attempts, version, is_guard, created_at,"
    " next_attempt_at"
)

_WIDTH = len(COLUMNS.split(","))


@dataclass(frozen=True, slots=True)
class Intent:
    """What the owner's operation wants done. A new row becomes due at `due_at` (G8; for a guard G13)."""

    id: UUID
    snapshot_id: UUID
    post_id: UUID
    reason: Reason
    requested_by_user_id: UUID
    due_at: datetime
    is_guard: bool = False


# The partial index's predicate is a literal: as a bind parameter the planner can no longer match it once the
# statement has a generic plan (A11). A concurrent owner of the same snapshot makes this wait no longer than its
# transaction, which the session's timeouts bound.
_STAGE = text(f"""
    INSERT INTO news.snapshot_detach_outbox
        (id, snapshot_id, post_id, reason, requested_by_user_id, next_attempt_at, is_guard, created_at, updated_at)
    SELECT id, snapshot_id, post_id, reason, requested_by_user_id, due_at, is_guard, :now, :now
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:snapshot_ids AS uuid[]), CAST(:post_ids AS uuid[]), CAST(:reasons AS text[]),
        CAST(:user_ids AS uuid[]), CAST(:due AS timestamptz[]), CAST(:guards AS boolean[])
    ) AS intent (id, snapshot_id, post_id, reason, requested_by_user_id, due_at, is_guard)
    ORDER BY snapshot_id
    ON CONFLICT (snapshot_id) WHERE status <> 'Done' DO NOTHING
    RETURNING {COLUMNS}
""")

_REMOVE_GUARDS = text("""
    DELETE FROM news.snapshot_detach_outbox
    WHERE id = ANY(CAST(:ids AS uuid[])) AND is_guard AND status = 'Pending' AND version = 0
""")

_BY_ID = text(f"SELECT {COLUMNS} FROM news.snapshot_detach_outbox WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id")


def stage(connection: Connection, intents: Sequence[Intent], now: datetime) -> list[Entry]:
    """Write intents in the owner's transaction (J18); one statement. Answers the rows really made.

    A snapshot that has an active row already gets no second one (J20); that intent is missing from the answer.
    """
    if not intents:
        return []
    rows = connection.execute(
        _STAGE,
        {
            "ids": [intent.id for intent in intents],
            "snapshot_ids": [intent.snapshot_id for intent in intents],
            "post_ids": [intent.post_id for intent in intents],
            "reasons": [intent.reason.value for intent in intents],
            "user_ids": [intent.requested_by_user_id for intent in intents],
            "due": [intent.due_at for intent in intents],
            "guards": [intent.is_guard for intent in intents],
            "now": now,
        },
    )
    return [entry_of(row) for row in rows]


def remove_guards(connection: Connection, guard_ids: Sequence[UUID]) -> int:
    """Remove untouched guards in the switch's transaction (G13); answers how many went.

    A guard that the job has claimed (version above 0) stays: the caller must then fail its request.
    """
    if not guard_ids:
        return 0
    return connection.execute(_REMOVE_GUARDS, {"ids": list(guard_ids)}).rowcount


def by_id(connection: Connection, ids: Sequence[UUID]) -> list[Entry]:
    """The entries with these ids, in id order; unknown ids are absent."""
    return [entry_of(row) for row in connection.execute(_BY_ID, {"ids": list(ids)})]


def entry_of(row: Row[Any]) -> Entry:
    """A row that begins with COLUMNS. Reason and status stay text: a newer release may have written unknown ones."""
    return Entry(*row[:_WIDTH])
