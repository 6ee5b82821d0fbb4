"""The alert of a quarantine (J15): its message rides in the quarantine's transaction, on a queue of its own (G21).

The message only starts a worker on it. What is to be told stands in the rows, one an event and a sink (G27). The log is
told here, every other sink by a thread of its own, so that none keeps a worker's thread.
"""

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

import dramatiq
from sqlalchemy import Connection

from actors.process import WorkerContext, context
from db.outbox import alerts
from db.runner.gate import ALERT_QUEUE
from pin.clock import utc_now
from pin.job.telling import NOT_CONFIGURED, not_told
from pin.rules.alerts import LOG, SINKS, QuarantinedEvent, Telling
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.ALERTS, [LOG], ["sent"])
metrics.declare(metrics.ALERTS, [sink for sink in SINKS if sink != LOG], ["sent", "failed", "not_called"])


@dramatiq.actor(queue_name=ALERT_QUEUE, max_retries=0)
def raise_alerts(event_ids: list[str]) -> None:
    """Raise the alert of each event at each sink whose row was handed over: at least once, each sink for itself."""
    worker = context()
    ids = [UUID(event_id) for event_id in event_ids]
    lease = worker.policy.backoff_base
    with worker.engine.begin() as connection:
        alerts.adopt(connection, utc_now(), lease, ids=ids)
        found = alerts.handed_over(connection, ids)
    if new := [telling.event for telling in found if telling.sink == LOG]:
        _log(new)
        taken = [event.id for event in new]
        with worker.engine.begin() as connection:
            alerts.take_up(connection, taken, worker.tellers.sinks, utc_now(), lease)
            found = alerts.handed_over(connection, ids)
        metrics.ALERTS.labels(LOG, "sent").inc(len(new))
    _hand_on(worker, [telling for telling in found if telling.sink != LOG])


def announce(connection: Connection, event_ids: Sequence[UUID]) -> None:
    """Write the alert's message into the caller's transaction."""
    from actors import detach_broker

    detach_broker.enqueue_on(connection, [raise_alerts.message([str(event_id) for event_id in event_ids])])


def _hand_on(worker: WorkerContext, tellings: Sequence[Telling]) -> None:
    by_sink: dict[str, list[Telling]] = defaultdict(list)
    for telling in tellings:
        by_sink[telling.sink].append(telling)
    for sink, some in by_sink.items():
        if not worker.tellers.submit(sink, some):
            not_told(worker.terms, sink, some, NOT_CONFIGURED)


def _log(events: Sequence[QuarantinedEvent]) -> None:
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
