"""What a worker's beats say: its own queues, looks that succeeded, threads that live (G29)."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from dramatiq import Worker

from actors.broker import DetachBroker
from db.embedded.server import EmbeddedServer
from pin.telemetry.pulse import Pulse


@pytest.fixture
def broker() -> Iterator[DetachBroker]:
    made = DetachBroker()
    for queue in ("asked-for", "left-out"):
        made.declare_queue(queue)
    yield made
    made.close()


def working(broker: DetachBroker) -> Any:
    worker: Any = Worker(broker, queues={"asked-for"}, worker_threads=1, worker_timeout=50)  # type: ignore[no-untyped-call]
    worker.start()
    return worker


@pytest.mark.req("G29")
@pytest.mark.case("A49")
def test_health_expects_the_queues_asked_for_and_sees_a_thread_that_ended(broker: DetachBroker, database: str) -> None:
    pulse = Pulse(timedelta(minutes=1))
    broker.configure(url=database, lease=timedelta(seconds=30), poll=timedelta(milliseconds=100), pulse=pulse)
    worker = working(broker)
    try:
        assert set(pulse._beats) == {"asked-for"}
        assert pulse.fault() is None
    finally:
        worker.stop(timeout=10_000)
    assert "has ended" in str(pulse.fault())


@pytest.mark.req("G29")
@pytest.mark.case("A49")
def test_a_consumer_beats_only_after_a_look_that_succeeded(
    broker: DetachBroker, database: str, server: EmbeddedServer
) -> None:
    for url, beats in ((server.url("no_such_database"), False), (database, True)):
        pulse = Pulse(timedelta(minutes=1))
        broker.configure(url=url, lease=timedelta(seconds=30), poll=timedelta(milliseconds=100), pulse=pulse)
        consumer = broker.consume("asked-for", timeout=50)
        if beats:
            next(consumer)
        else:
            with pytest.raises(Exception, match="does not answer"):
                next(consumer)
        assert ("asked-for" in pulse._beats) is beats
        consumer.close()
