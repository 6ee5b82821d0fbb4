"""The gauges of the fleet's state, asked of the database at each scrape: equal on every replica (J25, J27, G18, G20).

Absent when the database does not answer, never stale.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Connection, Engine, text

from db.backlog import Backlog, read_backlog
from db.queue import DETACH_QUEUE
from db.runner_lock import lock_key
from db.runs import SUCCESSFUL

BATCH_STATES = ("queued", "consumed", "rejected")


@dataclass(frozen=True, slots=True)
class Machinery:
    """What delivers. `last_success`: the end of the last successful run (G20), None when there has been none.

    `batches`: messages of the detach queue by state. `untold_alerts`: quarantine events that some sink was not told of.
    """

    last_success: datetime | None
    lock_held: bool
    batches: dict[str, int]
    untold_alerts: int


_MACHINERY = text("""
    SELECT
        (SELECT ended_at FROM news.snapshot_detach_run WHERE result = ANY(CAST(:successful AS text[]))
         ORDER BY started_at DESC LIMIT 1) AS last_success,
        EXISTS (
            SELECT FROM pg_locks
            WHERE locktype = 'advisory' AND granted AND objsubid = 2
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND classid = CAST(CAST(:first AS bigint) AS oid) AND objid = CAST(CAST(:second AS bigint) AS oid)
        ) AS lock_held,
        (SELECT count(*) FROM dramatiq.queue WHERE queue_name = :queue AND state = 'queued') AS queued,
        (SELECT count(*) FROM dramatiq.queue WHERE queue_name = :queue AND state = 'consumed') AS consumed,
        (SELECT count(*) FROM dramatiq.queue WHERE queue_name = :queue AND state = 'rejected') AS rejected,
        (SELECT count(*) FROM news.snapshot_detach_quarantined_event WHERE alerted_at IS NULL) AS untold
""")


def read_machinery(connection: Connection) -> Machinery:
    """How runner, queue and alerts stand; one statement. Whoever holds the lock is seen from every session."""
    first, second = lock_key()
    row = connection.execute(
        _MACHINERY,
        {
            "successful": [result.value for result in SUCCESSFUL],
            "first": first & 0xFFFFFFFF,  # pg_locks shows the halves unsigned
            "second": second & 0xFFFFFFFF,
            "queue": DETACH_QUEUE,
        },
    ).one()
    batches = {"queued": row.queued, "consumed": row.consumed, "rejected": row.rejected}
    return Machinery(row.last_success, row.lock_held, batches, row.untold)


class StateCollector(Collector):
    """Two statements a scrape. `collect` raises sqlalchemy errors when the database does not answer."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """The families without the state's samples, so that registering asks the database nothing."""
        yield from _families(Backlog(0, 0.0, 0), Machinery(None, lock_held=False, batches={}, untold_alerts=0))

    def collect(self) -> Iterator[Metric]:
        """The gauges as they stand."""
        with self._engine.connect() as connection:
            backlog = read_backlog(connection, self._clock())
            machinery = read_machinery(connection)
        yield from _families(backlog, machinery)


def _families(backlog: Backlog, machinery: Machinery) -> Iterator[Metric]:
    yield GaugeMetricFamily("news_snapshot_detach_pending", "Pending entries", value=backlog.pending)
    yield GaugeMetricFamily(
        "news_snapshot_detach_oldest_age_seconds",
        "Age of the oldest Pending entry, 0 when none",
        value=backlog.oldest_age,
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
    batches = GaugeMetricFamily(
        "news_snapshot_detach_batches",
        "Batches handed over and not finished, by their message's state",
        labels=["state"],
    )
    for state, count in machinery.batches.items():
        batches.add_metric([state], count)
    yield batches
    yield GaugeMetricFamily(
        "news_snapshot_detach_untold_alerts",
        "Quarantines that some configured sink has not been told of yet",
        value=machinery.untold_alerts,
    )
