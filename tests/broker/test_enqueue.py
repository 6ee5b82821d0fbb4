"""Enqueueing: in the caller's transaction or alone, and what the broker refuses."""

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event, text

from actors.broker import DetachBroker
from tests.broker.conftest import Query
from tests.broker.queue_actors import broker, record
from tests.broker.worker_process import ROOT

COUNT = "select count(*) from dramatiq.queue"


@pytest.mark.req("G6")
def test_a_message_exists_if_and_only_if_the_callers_transaction_commits(
    engine: Engine, database: str, ask: Query, observer: psycopg.Connection
) -> None:
    observer.execute('listen "dramatiq.work.enqueue"')
    with engine.connect() as connection:
        broker.enqueue_on(connection, [record.message(1)])
        connection.rollback()
    with psycopg.connect(database) as plain:
        broker.enqueue_on(plain, [record.message(2)])
        plain.rollback()
    assert ask(COUNT) == [0]
    with engine.connect() as connection:
        connection.execute(text("insert into runs (n, pid) values (1, 1)"))
        broker.enqueue_on(connection, [record.message(n) for n in range(100)])
        assert ask(COUNT) == [0], "not before the commit"
        connection.commit()
    assert ask(COUNT) == [100]
    assert ask("select distinct state::text || deliveries from dramatiq.queue") == ["queued0"]
    assert ask("select count(*) from runs") == [1]
    told = list(observer.notifies(timeout=0.5))
    assert [notify.channel for notify in told] == ["dramatiq.work.enqueue"], "one for the lot"


@pytest.mark.req("G6")
def test_a_failed_enqueue_is_neither_repeated_nor_committed(engine: Engine, ask: Query) -> None:
    twice = record.message(1)
    with engine.connect() as connection:
        statements: list[str] = []
        event.listen(connection, "before_cursor_execute", lambda *call: statements.append(call[2]))
        with pytest.raises(Exception, match="duplicate key"):
            broker.enqueue_on(connection, [record.message(0), twice, twice])
        assert len(statements) == 1
        connection.rollback()
    assert ask(COUNT) == [0]


@pytest.mark.req("C3", "G6")
def test_a_message_sent_alone_is_committed_at_once(database: str, ask: Query) -> None:
    alone = DetachBroker()
    alone.configure(url=database, lease=timedelta(minutes=1), poll=timedelta(seconds=1))
    message = alone.enqueue(record.message(7))
    assert ask("select message_id::text from dramatiq.queue") == [message.message_id]
    with psycopg.connect(database) as connection:
        connection.execute("drop table dramatiq.queue")
    with pytest.raises(psycopg.errors.UndefinedTable):
        alone.enqueue(record.message(8))


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "used",
    [lambda unready: unready.enqueue(record.message(1)), lambda unready: unready.consume("work")],
    ids=["enqueue", "consume"],
)
def test_a_broker_that_was_not_configured_says_so(used: Callable[[DetachBroker], object]) -> None:
    with pytest.raises(RuntimeError, match="before configure"):
        used(DetachBroker())


@pytest.mark.req("G6")
def test_delays_and_names_that_postgresql_cannot_listen_to_are_refused() -> None:
    with pytest.raises(ValueError, match="no delays"):
        DetachBroker().enqueue(record.message(1), delay=1000)
    with pytest.raises(ValueError, match="too long"):
        DetachBroker().declare_queue("q" * 47)
    assert broker.get_declared_delay_queues() == set()


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "wrong", [{"lease": timedelta(0)}, {"poll": timedelta(0)}, {"slots": 0}, {"max_deliveries": 0}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    settings = {"url": "postgresql://", "lease": timedelta(1), "poll": timedelta(1), **wrong}
    with pytest.raises(ValueError, match="must be"):
        DetachBroker().configure(**settings)


@pytest.mark.req("C3")
def test_importing_actors_connects_to_nothing_and_reads_no_settings() -> None:
    probe = (
        "import sys, socket\n"
        "def refuse(event, args):\n"
        "    if event.startswith('socket.connect'): sys.exit('connected')\n"
        "sys.addaudithook(refuse)\n"
        "import tests.broker.queue_actors, threading\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", probe], cwd=ROOT, env={}, check=True, timeout=30)
