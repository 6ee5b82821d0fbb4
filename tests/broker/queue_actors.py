"""Actors for worker processes of the broker's tests: `dramatiq tests.broker.queue_actors:setup_broker`."""

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import dramatiq
import psycopg

from actors.broker import DetachBroker

RUNS = """
create unlogged table runs (n int not null, pid int not null, at timestamptz not null default clock_timestamp())
"""

broker = DetachBroker()
_own = threading.local()


def setup_broker() -> None:
    """What a worker process calls before it consumes; its settings stand in QUEUE_… variables."""
    slots = os.environ.get("QUEUE_SLOTS")
    broker.configure(
        url=os.environ["QUEUE_URL"],
        lease=timedelta(seconds=float(os.environ["QUEUE_LEASE"])),
        poll=timedelta(seconds=float(os.environ["QUEUE_POLL"])),
        slots=int(slots) if slots else None,
    )
    dramatiq.set_broker(broker)


def ran(n: int) -> None:
    """Writes down that message n was run, on a connection of the thread's own."""
    connection: psycopg.Connection | None = getattr(_own, "connection", None)
    if connection is None or connection.closed:
        connection = psycopg.connect(os.environ["QUEUE_URL"], autocommit=True, application_name="test-actor")
        _own.connection = connection
    connection.execute("insert into runs (n, pid) values (%s, %s)", [n, os.getpid()])


@dramatiq.actor(broker=broker, queue_name="work")
def record(n: int) -> None:
    ran(n)


@dramatiq.actor(broker=broker, queue_name="work")
def hold(n: int, gate: str) -> None:
    """Is in mid-message until somebody opens the gate, a FIFO, for writing."""
    ran(n)
    Path(gate).read_bytes()


@dramatiq.actor(broker=broker, queue_name="work")
def die(n: int) -> None:
    """Takes its worker with it, the command's main process included."""
    ran(n)
    os.killpg(0, signal.SIGKILL)


@dramatiq.actor(broker=broker, queue_name="work")
def nothing() -> None:
    """Only the queue's own cost."""
