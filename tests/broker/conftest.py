import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from actors.broker import DetachBroker
from actors.consumer import LeaseConsumer
from tests.broker.queue_actors import RUNS, broker
from tests.broker.worker_process import WorkerProcess

Enqueue = Callable[..., None]
StartWorker = Callable[..., WorkerProcess]
MakeBroker = Callable[..., DetachBroker]
MakeConsumer = Callable[..., LeaseConsumer]
Query = Callable[..., list[Any]]


@pytest.fixture
def observer(database: str) -> Iterator[psycopg.Connection]:
    """An autocommit connection to the test's database, in which `runs` records what actors ran."""
    with psycopg.connect(database, autocommit=True, application_name="test-observer") as connection:
        connection.execute(RUNS)
        yield connection


@pytest.fixture
def ask(observer: psycopg.Connection) -> Query:
    """The first column of a query's rows."""
    return lambda query, *parameters: [row[0] for row in observer.execute(query, parameters)]


@pytest.fixture
def enqueue(observer: psycopg.Connection) -> Enqueue:
    """Enqueues messages and commits."""
    return lambda *messages: broker.enqueue_on(observer, messages)


@pytest.fixture
def start_worker(database: str, tmp_path: Path) -> Iterator[StartWorker]:
    """Starts `dramatiq` commands on the test's queue, which end with the test."""
    started: list[WorkerProcess] = []

    def start(
        *, lease: float = 30, poll: float = 0.5, slots: int | None = None, processes: int = 1, threads: int = 2
    ) -> WorkerProcess:
        settings = {"QUEUE_URL": database, "QUEUE_LEASE": str(lease), "QUEUE_POLL": str(poll)}
        if slots:
            settings["QUEUE_SLOTS"] = str(slots)
        worker = WorkerProcess(tmp_path / f"worker-{len(started)}.log", settings, processes, threads)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.kill()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO: whoever reads it waits until the test writes."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def make_broker(database: str) -> Iterator[MakeBroker]:
    """A broker as another process would have it; closed after the test. `options` are those of its sessions."""
    with ExitStack() as after_the_test:

        def make(*, lease: timedelta = timedelta(hours=1), slots: int = 8, options: str = "") -> DetachBroker:
            made = DetachBroker()
            url = f"{database}?options={quote(options)}"
            made.configure(url=url, lease=lease, poll=timedelta(seconds=0.1), slots=slots)
            after_the_test.enter_context(closing(made))
            return made

        yield make


@pytest.fixture
def make_consumer(make_broker: MakeBroker) -> Iterator[MakeConsumer]:
    """A consumer of the queue `work`, of a broker of its own or of the one given; closed after the test."""
    with ExitStack() as after_the_test:

        def make(broker: DetachBroker | None = None, **settings: Any) -> LeaseConsumer:
            made = (broker or make_broker(**settings)).consume("work", timeout=200)
            after_the_test.enter_context(closing(made))
            return made

        yield make
