"""The gauges of the outbox, asked of the database at each scrape: absent when it does not answer, never stale (J25)."""

from collections.abc import Callable, Iterator
from datetime import datetime

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import Engine

from db.backlog import read_backlog


class BacklogCollector(Collector):
    """One statement a scrape. `collect` raises sqlalchemy errors when the database does not answer."""

    def __init__(self, engine: Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        """The families without samples, so that registering asks the database nothing."""
        yield from _families(0, 0.0, 0)

    def collect(self) -> Iterator[Metric]:
        """The gauges as they stand."""
        with self._engine.connect() as connection:
            backlog = read_backlog(connection, self._clock())
        yield from _families(backlog.pending, backlog.oldest_age, backlog.quarantined)


def _families(pending: int, oldest_age: float, quarantined: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("news_snapshot_detach_pending", "Pending entries", value=pending)
    yield GaugeMetricFamily(
        "news_snapshot_detach_oldest_age_seconds", "Age of the oldest Pending entry, 0 when none", value=oldest_age
    )
    yield GaugeMetricFamily("news_snapshot_detach_quarantined_entries", "Quarantined entries", value=quarantined)
