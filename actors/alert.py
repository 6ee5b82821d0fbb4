"""The alert of a quarantine (J15): its message rides in the quarantine's transaction, on a queue of its own (G21)."""

from collections.abc import Sequence
from uuid import UUID

import dramatiq
from sqlalchemy import Connection

from actors.process import context
from db import quarantine
from db.queue import ALERT_QUEUE
from pin.clock import utc_now
from pin.telemetry.logs import get_logger

log = get_logger(__name__)


@dramatiq.actor(queue_name=ALERT_QUEUE, max_retries=0)
def raise_alerts(event_ids: list[str]) -> None:
    """Raise the alert of each event that has none yet, then mark it: at least once, and not again and again."""
    engine = context().engine
    ids = [UUID(event_id) for event_id in event_ids]
    with engine.connect() as connection:
        events = quarantine.unalerted(connection, ids)
    for event in events:
        log.error(
            "SnapshotDetachQuarantinedEvent",
            snapshotId=str(event.snapshot_id),
            postId=str(event.post_id),
            reason=event.reason,
            attempts=event.attempts,
            errorCode=event.last_error,
            entryId=str(event.entry_id),
        )
    with engine.begin() as connection:
        quarantine.mark_alerted(connection, [event.id for event in events], utc_now())


def announce(connection: Connection, event_ids: Sequence[UUID]) -> None:
    """Write the alert's message into the caller's transaction."""
    from actors import detach_broker

    detach_broker.enqueue_on(connection, [raise_alerts.message([str(event_id) for event_id in event_ids])])
