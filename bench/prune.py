"""What a prune costs the claims beside it: `python -m bench.prune`, with a million Done entries unless told.

Claims of 100 due rows are timed, each committed, alone and while a thread prunes as the job's stage does; then the
bytes of a million intents, and the share of updates that stayed on their page.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from sqlalchemy import Engine, text

from bench.database import Databases, FreshDatabase
from db.connect import make_engine
from db.embedded.server import EmbeddedServer
from db.outbox import claim, retention
from db.outbox.claim import START, Terms
from db.outbox.retention import Kind
from db.runner.gate import gate_values
from pin.clock import new_id, utc_now
from pin.job import pruning
from pin.rules.outbox import Policy

BATCH = 100
CLAIMS = 400
BOUND = 2.0
"""The claims' p99 while a prune is under way, against alone."""

_AGE = timedelta(days=30)
_POLICY = Policy(12, timedelta(minutes=1), 2.0, timedelta(minutes=30))

_ENTRIES = text("""
    INSERT INTO news.snapshot_detach_outbox
        (id, snapshot_id, post_id, reason, requested_by_user_id, attempts, version, next_attempt_at, status, created_at,
         updated_at)
    SELECT
        CAST(lpad(to_hex(CAST(:at_ms AS bigint) + n / 50), 12, '0') || '7000' || left(md5(:kind || n), 16) AS uuid),
        gen_random_uuid(), gen_random_uuid(), 'PostDeleted', :user, 0, 0, :at, :status, :at, :at
    FROM generate_series(1, :count) n
""")
_ATTEMPTS = text("""
    INSERT INTO news.snapshot_detach_attempt
        (entry_id, entry_version, attempt, outcome, http_status, duration_ms, worker, recorded_at)
    SELECT id, 1, 1, 'Succeeded', 200, 12, 'worker-1:4711', updated_at FROM news.snapshot_detach_outbox
    WHERE status = 'Done' ORDER BY id
""")
_BYTES = """
    SELECT pg_total_relation_size('news.snapshot_detach_outbox')
        + pg_total_relation_size('news.snapshot_detach_attempt')
"""


def main() -> int:
    """Measure, print, and end with 1 where the claims suffer more than the bound."""
    parser = argparse.ArgumentParser(prog="python -m bench.prune", description=__doc__)
    parser.add_argument("-n", type=int, default=1_000_000, metavar="ENTRIES")
    wanted: int = parser.parse_args().n
    with tempfile.TemporaryDirectory(prefix="pin-bench-") as folder:
        Path(folder).chmod(0o711)
        settings = {"shared_preload_libraries": "pg_stat_statements"}
        with EmbeddedServer(Path(folder, "postgres"), settings=settings) as server:
            databases = Databases(server)
            with databases.fresh() as database:
                return _measure(database, wanted)


def _measure(database: FreshDatabase, wanted: int) -> int:
    engine = make_engine(database.url, pool_size=4)
    now = utc_now()
    _fill(engine, wanted, "Done", now - 2 * _AGE)
    with engine.begin() as connection:
        connection.execute(_ATTEMPTS)
    size = database.number(_BYTES)
    _fill(engine, 2 * CLAIMS * BATCH, "Pending", now - timedelta(minutes=1))
    database.connection.execute("VACUUM ANALYZE")
    alone = _claims(engine, CLAIMS)
    beside_it = _Prune(engine, now)
    beside_it.start()
    beside = _claims(engine, CLAIMS)
    still = beside_it.is_alive()
    beside_it.join()
    pruned, took = beside_it.pruned, beside_it.seconds
    ratio = beside / alone
    hot = database.number("""
        SELECT 100 * n_tup_hot_upd / greatest(1, n_tup_upd) FROM pg_stat_user_tables
        WHERE relname = 'snapshot_detach_outbox'
    """)
    out = sys.stdout.write
    out(f"prune: {pruned} entries with their history in {took:.1f} s, {pruned / took:.0f} a second\n")
    out(f"prune: an intent with its history takes {size / wanted:.0f} bytes, indexes included\n")
    if not still:
        out("prune: it was over before the claims were: the ratio is too good, give more entries\n")
    out(f"prune: {hot}% of the claims' updates were HOT\n")
    out(f"prune: claim p99 {alone * 1000:.1f} ms alone, {beside * 1000:.1f} ms beside it\n")
    out(f"prune: ratio = {ratio:.2f} (bound {BOUND})\n")
    engine.dispose()
    return 0 if ratio <= BOUND and pruned == wanted else 1


def _fill(engine: Engine, count: int, status: str, at: datetime) -> None:
    values = {"count": count, "status": status, "kind": status, "at": at, "user": new_id()}
    with engine.begin() as connection:
        connection.execute(_ENTRIES, values | {"at_ms": int(at.timestamp() * 1000)})


def _claims(engine: Engine, count: int) -> float:
    """The p99 of so many claims, in seconds."""
    took: list[float] = []
    with engine.connect() as connection:
        pid: int = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.rollback()
        due = utc_now()
        mine: list[UUID] = []
        gate = gate_values(run_id=new_id(), lease=timedelta(seconds=40), mine=mine)
        terms = Terms(gate=gate, backend_pid=pid, due=due, policy=_POLICY, most=8)
        cursor = START
        for _ in range(count):
            began = time.perf_counter()
            taken = claim.claim_due(connection, terms, after=cursor, size=BATCH, now=due)
            connection.commit()
            took.append(time.perf_counter() - began)
            if len(taken.claimed) != BATCH:
                raise RuntimeError(f"a claim found {len(taken.claimed)} rows: the figure would mean nothing")
            cursor = taken.cursor
    return statistics.quantiles(took, n=100)[98]


class _Prune(threading.Thread):
    """The job's stage, again and again without a pause: more than any fleet does."""

    def __init__(self, engine: Engine, now: datetime) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._now = now
        self.pruned = 0
        self.seconds = 0.0

    def run(self) -> None:
        began = time.monotonic()
        while done := pruning.stage(self._engine, {Kind.DONE: _AGE}, lambda: self._now, seconds=5.0):
            self.pruned += done[Kind.DONE]
            with self._engine.connect() as connection:
                if retention.place(connection, Kind.DONE) == retention.START:
                    break
        self.seconds = time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
