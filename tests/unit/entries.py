"""Intents and policies as values, for tests of the pure rules."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pin.rules.contract import Reason
from pin.rules.outbox import Entry, Policy, Status

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DEFAULT = Policy(
    max_attempts=12, backoff_base=timedelta(minutes=1), backoff_factor=2.0, backoff_cap=timedelta(minutes=30)
)


def entry(**changed: Any) -> Entry:
    """A Pending intent after its first claim; `changed` replaces fields."""
    given: dict[str, Any] = {
        "id": UUID(int=1),
        "snapshot_id": UUID(int=2),
        "post_id": UUID(int=3),
        "reason": Reason.POST_DELETED,
        "requested_by_user_id": UUID(int=4),
        "status": Status.PENDING,
        "attempts": 1,
        "version": 1,
        "is_guard": False,
        "created_at": NOW - timedelta(minutes=5),
        "next_attempt_at": NOW + timedelta(minutes=1),
    }
    return Entry(**(given | changed))
