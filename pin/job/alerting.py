"""The stage that announces what is due of the alerts: also while the job is paused, and whatever the run does (G27)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection

from db.outbox import alerts
from pin.job.record import Announce

PER_SINK = 500
"""Rows of one sink that a tick announces, so that the stage is bounded."""
_PER_MESSAGE = 100
_MOST_WAITING = 20
"""Messages without a worker at which nothing is added: the rows stay due."""


def stage(connection: Connection, *, now: datetime, lease: timedelta, announce: Announce) -> int:
    """Claim what is due of each sink and write its messages, in the caller's transaction; answers how many events.

    Waits for no lock: what somebody else holds is passed over. lease: how long they belong to whoever takes the
    messages; after it they are due again, so that a lost worker's telling is told again.
    """
    if alerts.messages_waiting(connection, _MOST_WAITING) >= _MOST_WAITING:
        return 0
    adopted = alerts.adopt(connection, now, lease, limit=PER_SINK)
    found = sorted(adopted | alerts.claim_due(connection, now, lease, limit=PER_SINK))
    for some in _parts(found):
        announce(connection, some)
    return len(found)


def _parts(ids: Sequence[UUID]) -> list[Sequence[UUID]]:
    return [ids[start : start + _PER_MESSAGE] for start in range(0, len(ids), _PER_MESSAGE)]
