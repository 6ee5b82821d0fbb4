"""The three systems: how each gets its work, how it is started, and what is checked afterwards."""

import sys
from datetime import timedelta
from pathlib import Path

from dramatiq.message import Message

from bench.database import Databases, FreshDatabase
from bench.processes import clean_environment, running
from bench.ratios import CLIENT_LOOP, PLAIN_DRAMATIQ, PRODUCT, Sample
from bench.run import BenchError, measured, until
from bench.work import REASON, USER, Work
from db.connect import make_engine
from db.outbox.intents import Intent, stage
from pin.clock import new_id, utc_now
from pin.rules.contract import Reason

LOOP_IN_FLIGHT = {0: 8, 20: 14}
"""Calls in flight of the loop: the best for one httpx.AsyncClient at each delay in milliseconds."""
PLAIN_THREADS = {0: 4, 20: 8}
"""Threads a process of plain dramatiq-pg at each delay; 4, 8 and 16 come to the same within a tenth or two."""
PLAIN_PREFETCH = 20_000
"""More than there are messages: at its prefetch limit the stock consumer sleeps up to a second a message."""
WORKER_PROCESSES = 2
WORKER_THREADS = 2
"""Batches a worker process works on at once: the product's default, like all its settings here."""

_ROOT = Path(__file__).parents[1]
_DRAMATIQ = str(Path(sys.executable).with_name("dramatiq"))
_QUEUES = 2
_READY = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pin-worker-queue' AND state = 'idle'
"""
_ENQUEUE = """
    INSERT INTO dramatiq.queue (message_id, queue_name, state, message)
    SELECT (body ->> 'message_id')::uuid, body ->> 'queue_name', 'queued', body FROM unnest(%s::jsonb[]) AS body
"""


def client_loop(work: Work, folder: Path) -> Sample:
    """A loop over one httpx.AsyncClient (bench/client_loop.py)."""
    lanes = LOOP_IN_FLIGHT.get(work.delay_ms, max(LOOP_IN_FLIGHT.values()))
    arguments = (work.endpoint.url, str(work.ids_file), str(work.token_file), str(lanes))
    command = [sys.executable, "-m", "bench.client_loop", *arguments]
    with running([command], environment=_environment(), folder=folder) as processes:
        run = measured(work, [process.pid for process in processes])
    return run.sample(CLIENT_LOOP, work)


def product(work: Work, folder: Path, databases: Databases) -> Sample:
    """The production processes under production's settings: two workers are up, then the scheduler starts and ticks."""
    with databases.fresh() as database:
        _stage(work, database)
        environment = _environment(
            PIN_DATABASE_URL=database.url,
            PIN_SELECTIONS_URL=work.endpoint.url,
            PIN_AUTH__M2M_PRIVATE_KEY=str(work.private_key),
        )
        worker = [_DRAMATIQ, "actors", "--path", str(_ROOT), "-p", "1", "-t", str(WORKER_THREADS)]
        scheduler = [sys.executable, str(_ROOT / "scheduler.py")]
        with (
            database.costing() as cost,
            running([worker] * WORKER_PROCESSES, environment=environment, folder=folder) as workers,
        ):
            until(lambda: database.number(_READY) >= WORKER_PROCESSES * _QUEUES, "the workers do not get ready")
            with running([scheduler], environment=environment, folder=folder) as schedulers:
                pids = [process.pid for process in (*workers, *schedulers)]
                pending = "SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Pending'"
                run = measured(work, pids, database, pending)
        _check_done(PRODUCT, work, database, "SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = 'Done'")
    return run.sample(PRODUCT, work, *cost)


def plain_dramatiq(work: Work, folder: Path, databases: Databases) -> Sample:
    """Plain dramatiq-pg, a message a call (bench/plain_dramatiq.py), two processes."""
    threads = PLAIN_THREADS.get(work.delay_ms, max(PLAIN_THREADS.values()))
    with databases.fresh(stock=True) as database:
        _enqueue(work, database)
        environment = _environment(
            BENCH_DATABASE=database.url,
            BENCH_ENDPOINT=work.endpoint.url,
            BENCH_TOKEN=work.token_file.read_text(),
            BENCH_THREADS=str(threads),
            dramatiq_queue_prefetch=str(PLAIN_PREFETCH),
        )
        shape = ("-p", str(WORKER_PROCESSES), "-t", str(threads))
        command = [_DRAMATIQ, "bench.plain_dramatiq", "--path", str(_ROOT), *shape]
        with database.costing() as cost, running([command], environment=environment, folder=folder) as processes:
            left = "SELECT count(*) FROM dramatiq.queue WHERE state IN ('queued', 'consumed')"
            run = measured(work, [process.pid for process in processes], database, left)
        _check_done(PLAIN_DRAMATIQ, work, database, "SELECT count(*) FROM dramatiq.queue WHERE state = 'done'")
    return run.sample(PLAIN_DRAMATIQ, work, *cost)


def _stage(work: Work, database: FreshDatabase) -> None:
    engine = make_engine(database.url, application_name="bench")
    now = utc_now()
    intents = [
        Intent(new_id(), snapshot_id, new_id(), Reason(REASON), USER, now - timedelta(seconds=1))
        for snapshot_id in work.ids
    ]
    with engine.begin() as connection:
        staged = stage(connection, intents, now)
    engine.dispose()
    if len(staged) != len(intents):
        raise BenchError(f"{len(staged)} of {len(intents)} intents staged")


def _enqueue(work: Work, database: FreshDatabase) -> None:
    """Write the messages as the stock broker does, in one statement: it takes no part in the measured time."""
    messages: list[Message[None]] = [Message("detach", "detach", (str(each),), {}, {}) for each in work.ids]
    database.connection.execute(_ENQUEUE, ([message.encode().decode() for message in messages],))


def _check_done(system: str, work: Work, database: FreshDatabase, query: str) -> None:
    done = database.number(query)
    if done != len(work.ids):
        raise BenchError(f"{system}: {done} of {len(work.ids)} done")


def _environment(**settings: str) -> dict[str, str]:
    return clean_environment(**settings) | {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"}
