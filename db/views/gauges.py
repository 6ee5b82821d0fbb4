"""The gauges of the fleet's state, asked of the database at each scrape: equal on every replica (J25, J27, G18, G20).

Absent when the database does not answer, never stale.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine

from db.outbox import alerts, runs
from db.outbox.alerts import Untold
from db.runner import lock_holder, pause
from db.views import standing
from db.views.backlog import Backlog, read_backlog
from db.views.standing import Batches
from pin.rules.alerts import SINKS


@dataclass(frozen=True, slots=True)
class Machinery:
    """What delivers. `last_success`: the end of the last successful run (G20), None when there has been none."""

    last_success: datetime | None
    lock_held: bool
    paused: bool
    batches: Batches
    untold_alerts: tuple[Untold, ...]


def read_machinery(connection: Connection, lease: timedelta) -> Machinery:
    """How runner, queue and alerts stand. Whoever holds the lock is seen from every session."""
    return Machinery(
        runs.last_success(connection),
        lock_holder.holder(connection) is not None,
        pause.read(connection) is not None,
        standing.batches(connection, lease=lease),
        tuple(alerts.counts(connection)),
    )


class StateCollector(Collector):
    """One connection a scrape, taken and given back. `collect` raises sqlalchemy errors when there is none.

    lease: the queue's, by which a consumed batch counts as expired.
    """

    def __init__(self, engine: Engine, clock: Callable[[], datetime], lease: timedelta) -> None:
        self._engine = engine
        self._clock = clock
        self._lease = lease

    def describe(self) -> Iterator[Metric]:
        """The families with no state in them, so that registering asks the database nothing."""
        untold = tuple(Untold(sink, 0, 0.0, 0) for sink in SINKS)
        nothing = Machinery(None, lock_held=False, paused=False, batches=Batches(0, 0, 0, 0, 0.0), untold_alerts=untold)
        yield from _families(Backlog(0, 0.0, 0), nothing)

    def collect(self) -> Iterator[Metric]:
        """The gauges as they stand."""
        with self._engine.connect() as connection:
            backlog = read_backlog(connection, self._clock())
            machinery = read_machinery(connection, self._lease)
        yield from _families(backlog, machinery)


def _families(backlog: Backlog, machinery: Machinery) -> Iterator[Metric]:
    yield GaugeMetricFamily("news_snapshot_detach_pending", "Pending entries", value=backlog.pending)
    yield GaugeMetricFamily(
        "news_snapshot_detach_oldest_age_seconds",
        "Age of the oldest Pending entry, 0 when none",
        value=backlog.oldest_age,
    )
    yield GaugeMetricFamily(
        "news_snapshot_detach_window_age_seconds",
        "Age of the oldest Pending entry without the time in which the job was halted or paused, 0 when none",
        value=backlog.window_age,
    )
    yield GaugeMetricFamily(
        "news_snapshot_detach_quarantined_entries", "Quarantined entries", value=backlog.quarantined
    )
    # Without a sample until there has been a run: 0 would read as 1970 and as an alert.
    success = GaugeMetricFamily(
        "news_snapshot_detach_last_success_timestamp_seconds", "End of the fleet's last successful run", labels=()
    )
    if machinery.last_success is not None:
        success.add_metric((), machinery.last_success.timestamp())
    yield success
    yield GaugeMetricFamily(
        "news_snapshot_detach_lock_held", "1 while a runner holds the lock", value=float(machinery.lock_held)
    )
    yield GaugeMetricFamily(
        "news_snapshot_detach_paused", "1 while an operator has paused the job", value=float(machinery.paused)
    )
    batches = GaugeMetricFamily(
        "news_snapshot_detach_batches", "Batches handed over and not finished, by state", labels=["state"]
    )
    for state in ("queued", "in_flight", "expired", "rejected"):
        batches.add_metric([state], getattr(machinery.batches, state))
    yield batches
    yield GaugeMetricFamily(
        "news_snapshot_detach_unconsumed_seconds",
        "How long the longest waiting batch has lain without a worker, 0 when none waits",
        value=machinery.batches.unconsumed_seconds,
    )
    untold = GaugeMetricFamily(
        "news_snapshot_detach_untold_alerts", "Quarantines that a sink has not been told of", labels=["sink"]
    )
    age = GaugeMetricFamily(
        "news_snapshot_detach_untold_alert_age_seconds",
        "How long the oldest of these has waited, 0 when there is none",
        labels=["sink"],
    )
    for one in machinery.untold_alerts:
        untold.add_metric([one.sink], one.count)
        age.add_metric([one.sink], one.oldest_seconds)
    yield untold
    yield age
