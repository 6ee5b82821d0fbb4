"""The alert of a quarantine (J15): its message rides in the quarantine's transaction, on a queue of its own (G21).

Raised in the log always, and at each configured sink. The event's row keeps who was told, so that a sink that is down
costs the others no repetition; what some sink was not told, a later tick announces again.
"""

import threading
import time
from collections.abc import Sequence
from uuid import UUID

import dramatiq
from sqlalchemy import Connection, Engine

from actors.process import context
from db.outbox import quarantine
from db.outbox.quarantine import QuarantinedEvent
from db.runner.gate import ALERT_QUEUE
from pin.clock import utc_now
from pin.outgoing.alert_sinks import Alert, Sink, SinkError, sinks_of
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

LOG_SINK = "log"
PAUSE = 60.0
"""Seconds that a sink which failed is left alone by this process: the threads are for deliveries."""

log = get_logger(__name__)

metrics.declare(metrics.ALERTS, [LOG_SINK], ["sent"])
metrics.declare(metrics.ALERTS, ["alertmanager", "webhook"], ["sent", "failed", "paused"])

_paused: dict[str, float] = {}
_pausing = threading.Lock()


@dramatiq.actor(queue_name=ALERT_QUEUE, max_retries=0)
def raise_alerts(event_ids: list[str]) -> None:
    """Raise the alert of each event at each sink that was not told of it: at least once, and not again and again."""
    worker = context()
    sinks = sinks_of(worker.settings.alerts)
    with worker.engine.connect() as connection:
        events = quarantine.untold(connection, [UUID(event_id) for event_id in event_ids])
    if new := [event for event, told in events if LOG_SINK not in told]:
        _log(new)
        _mark(worker.engine, new, LOG_SINK)
    for sink in sinks:
        if missing := [event for event, told in events if sink.name not in told]:
            _tell(worker.engine, sink, missing)
    with worker.engine.begin() as connection:
        names = [LOG_SINK, *(sink.name for sink in sinks)]
        quarantine.mark_alerted(connection, [event.id for event, _ in events], names, utc_now())


def announce(connection: Connection, event_ids: Sequence[UUID]) -> None:
    """Write the alert's message into the caller's transaction."""
    from actors import detach_broker

    detach_broker.enqueue_on(connection, [raise_alerts.message([str(event_id) for event_id in event_ids])])


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


def _tell(engine: Engine, sink: Sink, events: Sequence[QuarantinedEvent]) -> None:
    if _is_paused(sink):
        metrics.ALERTS.labels(sink.name, "paused").inc(len(events))
        return
    alerts = [
        Alert(e.id, e.entry_id, e.snapshot_id, e.post_id, e.reason, e.attempts, e.last_error, e.occurred_at)
        for e in events
    ]
    try:
        sink.send(alerts, utc_now())
    except SinkError as error:
        with _pausing:
            _paused[sink.name] = time.monotonic() + PAUSE
        metrics.ALERTS.labels(sink.name, "failed").inc(len(events))
        log.warning("alert not sent", sink=sink.name, entries=len(events), error=str(error))
        return
    _mark(engine, events, sink.name)


def _mark(engine: Engine, events: Sequence[QuarantinedEvent], sink: str) -> None:
    with engine.begin() as connection:
        quarantine.mark_told(connection, [event.id for event in events], sink)
    metrics.ALERTS.labels(sink, "sent").inc(len(events))


def _is_paused(sink: Sink) -> bool:
    with _pausing:
        return time.monotonic() < _paused.get(sink.name, 0.0)
