"""The metrics, under the documents' names (J25, D12). Gauges of the state come from SQL (db/views/gauges.py).

Every module that counts by label declares the label's values, so that a series is there at 0 before its first event:
`increase()` sees the first failure only if it has seen the 0 before it.
"""

import os
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from pin.telemetry.logs import get_logger
from pin.telemetry.multiprocess import FOLDER_VARIABLE, ensure_folder

log = get_logger(__name__)

disable_created_metrics()  # type: ignore[no-untyped-call]

if os.environ.get(FOLDER_VARIABLE):  # a worker process that replaces one that died makes its files here, on import
    ensure_folder(Path(os.environ[FOLDER_VARIABLE]))

LAG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)
"""Seconds; 600 is the SLO's edge (J28)."""
CALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds; 5 is DetachCallTimeout's default."""

RETRIED = Counter("news_snapshot_detach_retried", "Failed attempts of the job whose entry stays Pending")
SUCCEEDED = Counter("news_snapshot_detach_succeeded", "Entries that became Done, by the job or at once")
FAILED = Counter("news_snapshot_detach_failed", "Failed attempts of the job")
NOT_CALLED = Counter(
    "news_snapshot_detach_not_called", "Entries given back without a call: pass ended, worker stopped, time up"
)
STAGE_FAILURES = Counter(
    "news_snapshot_detach_stage_failures", "Housekeeping stages of a run that failed and wait for the next", ["stage"]
)
PRUNED = Counter("news_snapshot_detach_pruned", "Rows that the retention has deleted, by what they were", ["kind"])
QUARANTINED = Counter("news_snapshot_detach_quarantined", "Moves to Quarantined, however they came")
LAG = Histogram("news_snapshot_detach_lag_seconds", "From created_at to Done, at every Done", buckets=LAG_BUCKETS)
FIRST_ATTEMPTS = Counter(
    "news_snapshot_detach_first_attempts", "Synchronous first attempts, by what they did to the entry", ["outcome"]
)
STAGING_CONFLICTS = Counter("news_snapshot_detach_staging_conflicts", "Intents met by an active one: a fault (G14)")
RUNS = Counter("news_snapshot_detach_runs", "Ticks of the job, by how they ended", ["result"])
TICKS_MISSED = Counter("news_snapshot_detach_ticks_missed", "Ticks whose time passed without a run of their own")
ATTEMPT_SECONDS = Histogram(
    "news_snapshot_detach_attempt_seconds", "Duration of a detach call", ["verdict"], buckets=CALL_BUCKETS
)
ALERTS = Counter(
    "news_snapshot_detach_alerts",
    "Alerts of quarantines, by where they went and whether they got there",
    ["sink", "result"],
)
SNAPSHOT_DETACHED = Counter(
    "selections_snapshot_detached", "Detach requests answered 200", ["reason", "idempotent_hit"]
)
LANE_REFUSALS = Counter("web_lane_refusals", "Requests answered 503 because their lane was full", ["lane"])
CLIENT_SECONDS = Histogram(
    "selections_client_request_duration_seconds",
    "Requests that news makes to selections, one observation an exchange",
    ["operation", "outcome"],
    buckets=CALL_BUCKETS,
)
SERVER_SECONDS = Histogram(
    "http_server_request_duration_seconds",
    "Requests served, by route template and class of status",
    ["method", "route", "status"],
    buckets=CALL_BUCKETS,
)


def declare(metric: Counter | Histogram, *values: Iterable[str]) -> None:
    """Have the metric at 0 for every combination of its labels' values, in the labels' order."""
    for combination in product(*values):
        metric.labels(*combination)


def exposition(collectors: Iterable[Collector] = ()) -> bytes:
    """The process's metrics in Prometheus' text format, then those of `collectors`.

    With PROMETHEUS_MULTIPROC_DIR in the environment since the process's start: the sums of all processes that share
    that folder. A collector that fails leaves its metrics out: absent, not stale.
    """
    content = _counted()
    for collector in collectors:
        registry = CollectorRegistry()
        try:
            registry.register(collector)
            content += generate_latest(registry)
        except Exception as error:  # noqa: BLE001 - whatever ails the database, what was counted is still served
            log.warning("gauges not read", error=type(error).__name__)
    return content


def _counted() -> bytes:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return generate_latest(REGISTRY)
    if ensure_folder(Path(folder)):
        # Its files went with it. What this process counts it still has; of the others only their own figures are lost.
        log.warning("metrics folder was gone", folder=folder)
        return generate_latest(REGISTRY)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
