"""The metrics, under the documents' names (J25, D12). Gauges of the database's state come from SQL."""

from prometheus_client import Counter, Histogram

LAG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)
"""Seconds; 600 is the SLO's edge (J28)."""

RETRIED = Counter("news_snapshot_detach_retried", "Failed attempts of the job whose entry stays Pending")
SUCCEEDED = Counter("news_snapshot_detach_succeeded", "Entries that became Done, by the job or at once")
FAILED = Counter("news_snapshot_detach_failed", "Failed attempts of the job")
QUARANTINED = Counter("news_snapshot_detach_quarantined", "Moves to Quarantined, however they came")
LAG = Histogram("news_snapshot_detach_lag_seconds", "From created_at to Done, at every Done", buckets=LAG_BUCKETS)
FIRST_ATTEMPTS = Counter(
    "news_snapshot_detach_first_attempts", "Synchronous first attempts, by what they did to the entry", ["outcome"]
)
STAGING_CONFLICTS = Counter("news_snapshot_detach_staging_conflicts", "Intents met by an active one: a fault (G14)")
RUNS = Counter("news_snapshot_detach_runs", "Ticks of the job, by how they ended", ["result"])
ATTEMPT_SECONDS = Histogram("news_snapshot_detach_attempt_seconds", "Duration of a detach call", ["verdict"])
SNAPSHOT_DETACHED = Counter(
    "selections_snapshot_detached", "Detach requests answered 200", ["reason", "idempotent_hit"]
)
