"""Where the product sends an alert that it raises itself: Alertmanager's v2 API, a webhook (J15, J27).

Each call ends within the sink's own timeout, whatever the other side does, a name that does not resolve included. What
it answers counts by its status alone.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pin.config.sections import AlertOptions
from pin.outgoing.client import HttpClient
from pin.outgoing.errors import OutgoingError
from pin.rules.alerts import QuarantinedEvent

ALERT_NAME = "SnapshotDetachQuarantinedEvent"
RUNBOOK = "quarantined.md"

_SHOWN_FOR = timedelta(hours=1)
"""How long Alertmanager shows it: the rule on the gauge goes on for as long as the entry is quarantined."""
_ALERTMANAGER_PATH = "/api/v2/alerts"
_JSON = {"content-type": "application/json"}
_MOST_BYTES = 4096


class SinkError(Exception):
    """A sink did not take the alert; `str()` is a class or a status, never text of the answer.

    status: of the answer; None where there was none.
    """

    def __init__(self, error: str, status: int | None = None) -> None:
        super().__init__(error)
        self.status = status


@dataclass(frozen=True, slots=True)
class Sink:
    """A place that takes alerts by one POST; `url` may hold a password and is shown nowhere."""

    name: str
    url: str
    timeout: timedelta
    runbooks_url: str

    def send(self, alerts: Sequence[QuarantinedEvent], now: datetime, client: HttpClient) -> None:
        """Send them in one request. Raises SinkError, within the timeout; name resolution counts (G27)."""
        body = self._for_alertmanager(alerts, now) if self.name == "alertmanager" else _for_webhook(alerts)
        deadline = time.monotonic() + self.timeout.total_seconds()
        try:
            answer = client.ask(
                "POST", self.url, headers=_JSON, body=json.dumps(body).encode(), deadline=deadline, cap=_MOST_BYTES
            )
        except OutgoingError as error:
            raise SinkError(str(error)) from None
        if not 200 <= answer.status < 300:  # noqa: PLR2004
            raise SinkError(f"HTTP {answer.status}", answer.status)

    def _for_alertmanager(self, alerts: Sequence[QuarantinedEvent], now: datetime) -> list[dict[str, object]]:
        return [
            {
                "labels": {
                    "alertname": ALERT_NAME,
                    "severity": "warning",
                    "service": "news",
                    "snapshotId": str(alert.snapshot_id),
                    "reason": alert.reason,
                },
                "annotations": {
                    "summary": f"Snapshot {alert.snapshot_id} could not be detached and is quarantined",
                    "description": f"Post {alert.post_id}, {alert.attempts} attempts, last error"
                    f" {alert.last_error or 'none'}. pin entries show {alert.entry_id}",
                    "runbook_url": f"{self.runbooks_url.rstrip('/')}/{RUNBOOK}",
                },
                "startsAt": alert.occurred_at.isoformat(),
                "endsAt": (now + _SHOWN_FOR).isoformat(),
            }
            for alert in alerts
        ]


def _for_webhook(alerts: Sequence[QuarantinedEvent]) -> dict[str, object]:
    return {
        "event": ALERT_NAME,
        "entries": [
            {
                "eventId": str(alert.id),
                "entryId": str(alert.entry_id),
                "snapshotId": str(alert.snapshot_id),
                "postId": str(alert.post_id),
                "reason": alert.reason,
                "attempts": alert.attempts,
                "lastError": alert.last_error,
                "occurredAt": alert.occurred_at.isoformat(),
            }
            for alert in alerts
        ],
    }


def sinks_of(options: AlertOptions) -> tuple[Sink, ...]:
    """The sinks that are configured; the log is one always, and not among these."""
    found: list[Sink] = []
    if options.alertmanager_url is not None:
        url = options.alertmanager_url.rstrip("/")
        url = url if url.endswith(_ALERTMANAGER_PATH) else url + _ALERTMANAGER_PATH
        found.append(Sink("alertmanager", url, options.timeout, options.runbooks_url))
    if options.webhook_url is not None:
        found.append(Sink("webhook", options.webhook_url.get_secret_value(), options.timeout, options.runbooks_url))
    return tuple(found)
