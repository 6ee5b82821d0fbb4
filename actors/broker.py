"""The queue's broker: dramatiq-pg's schema, table and class, with a consumer and an enqueue of its own.

The only module that knows dramatiq-pg. Its stock consumer runs messages twice, leaks advisory locks and wedges on a
long backlog; LeaseConsumer takes its place (G6).
"""

from collections.abc import Sequence
from datetime import timedelta
from queue import Empty
from threading import Event
from typing import Any, NoReturn

import psycopg
import structlog
from dramatiq.broker import Broker, MessageProxy
from dramatiq.message import Message
from dramatiq.middleware import (
    Callbacks,
    CurrentMessage,
    Middleware,
    Retries,
    ShutdownNotifications,
    SkipMessage,
    TimeLimit,
)
from dramatiq.worker import Worker
from dramatiq_pg import PostgresBroker
from sqlalchemy import Connection

from actors.consumer import Consumption, LeaseConsumer, enqueue_channel
from actors.outcomes import Delivery, Held, Outcomes, open_session
from db.errors import describe, is_passing
from pin.telemetry.pulse import Pulse

POSTGRES_NAME_BYTES = 63
CONSUMER_PATIENCE = timedelta(seconds=60)
"""Far above the longest a look at the queue takes, a database that is away included."""

ENQUEUE = """
with sent as (
    insert into dramatiq.queue (message_id, queue_name, state, mtime, message)
    select id, queue, 'queued', clock_timestamp(), body::jsonb
    from unnest(%(ids)s::uuid[], %(queues)s::text[], %(bodies)s::text[]) as message (id, queue, body)
    returning queue_name
)
select pg_notify('dramatiq.' || queue_name || '.enqueue', '') from (select distinct queue_name from sent) as told
"""


log = structlog.get_logger(__name__)


class DetachBroker(PostgresBroker):  # type: ignore[misc]  # dramatiq-pg has no types
    """A broker over the table dramatiq.queue (C3, G6).

    Making one connects to nothing and reads no environment, so that a module may make it on import. `configure` is
    called in the process that uses it; connections are opened by the thread that needs them, so none crosses a fork
    (A23).
    """

    pulse: Pulse
    """Whether the loops that take messages still turn, a loop for each queue; `configure` may bring another."""

    draining: Event
    """Set once this process is to end (J6): nothing is claimed any more, and a running actor stops between entries."""

    def __init__(self) -> None:
        super().__init__(
            pool=_NoPool(),
            results=False,
            # The row's own schedule is the one authority on retries. Without this middleware a failed message would
            # count as done; with it, it is rejected and kept.
            middleware=[
                TimeLimit(),  # type: ignore[no-untyped-call]
                ShutdownNotifications(),  # type: ignore[no-untyped-call]
                Callbacks(),
                CurrentMessage(),
                Retries(max_retries=0),  # type: ignore[no-untyped-call]
                _WorkerLife(),
            ],
        )
        self.draining = Event()
        self.pulse = Pulse(CONSUMER_PATIENCE)
        self._held = Held()
        self._consumption: Consumption | None = None
        self._outcomes: Outcomes | None = None
        self._worker_threads: int | None = None

    def configure(
        self,
        *,
        url: str,
        lease: timedelta,
        poll: timedelta,
        slots: int | None = None,
        max_deliveries: int = 3,
        pulse: Pulse | None = None,
    ) -> None:
        """Says where the queue is and how to consume it; connects to nothing yet.

        url: a `postgresql://` URL of a server reached directly (LISTEN does not survive a transaction pooler).
        lease: how long a claimed message is this worker's own; longer than any actor's time limit.
        poll: the longest wait between two looks at the queue. slots: messages of one queue held at once, by default
        as many as the worker has threads. max_deliveries: a message delivered more often is rejected undecoded (G6).
        Raises ValueError for values that cannot work.
        """
        if lease <= timedelta(0) or poll <= timedelta(0):
            raise ValueError(f"lease and poll must be over zero, not {lease} and {poll}")
        if (slots is not None and slots < 1) or max_deliveries < 1:
            raise ValueError(f"slots and max_deliveries must be at least 1, not {slots} and {max_deliveries}")
        self.close()
        self.pulse = pulse or Pulse(CONSUMER_PATIENCE)
        self._consumption = Consumption(url, lease, poll, slots, max_deliveries)
        self._outcomes = Outcomes(url, lease, self._held, self.draining)

    def declare_queue(self, queue_name: str) -> None:
        """Declares a queue and no delay queue beside it: no thread waits for what is never sent.

        Raises ValueError when PostgreSQL could not name the queue's channel.
        """
        if queue_name in self.queues:
            return
        if len(enqueue_channel(queue_name).encode()) > POSTGRES_NAME_BYTES:
            raise ValueError(f"the queue's name is too long for a channel of PostgreSQL: {queue_name}")
        self.emit_before("declare_queue", queue_name)
        self.queues[queue_name] = True
        self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Enqueues a message at once, in a transaction and on a connection of its own; no retries.

        Raises ValueError for a delay, psycopg.Error when it cannot be written.
        """
        if delay is not None:
            raise ValueError(f"message {message.message_id}: the queue knows no delays, nor retries that need them")
        with open_session(self._configured()[0].url) as connection:
            self.enqueue_on(connection, [message])
        return message

    def enqueue_on(self, connection: Connection | psycopg.Connection[Any], messages: Sequence[Message[Any]]) -> None:
        """Enqueues messages in the caller's transaction: they exist if and only if it commits (G6).

        One statement whatever their number, with one NOTIFY for each queue named in them. Neither commits nor retries;
        needs no `configure`. Raises what the connection's library raises; the transaction is then the caller's to end.
        """
        if not messages:
            return
        for message in messages:
            self.emit_before("enqueue", message, None)
        parameters = {
            "ids": [message.message_id for message in messages],
            "queues": [message.queue_name for message in messages],
            "bodies": [message.encode().decode() for message in messages],
        }
        if isinstance(connection, Connection):
            connection.exec_driver_sql(ENQUEUE, parameters)
        else:
            connection.execute(ENQUEUE, parameters)
        for message in messages:
            self.emit_after("enqueue", message, None)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> LeaseConsumer:
        """A consumer of the queue; opens no connection before it is iterated. timeout: milliseconds.

        prefetch counts only where no worker has booted: dramatiq would have twice as many as there are threads wait in
        memory, and a lease starts at the claim.
        """
        consumption, outcomes = self._configured()
        return LeaseConsumer(
            queue_name,
            consumption,
            slots=consumption.slots or self._worker_threads or prefetch,
            wait=timedelta(milliseconds=timeout),
            held=self._held,
            outcomes=outcomes,
            draining=self.draining,
            beat=self.pulse.beat,
        )

    def close(self) -> None:
        """Closes the connection that outcomes are written on; consumers close their own."""
        if self._outcomes is not None:
            self._outcomes.close()

    def may_start(self, message: MessageProxy) -> bool:
        """Whether a claimed message is still this process' own when a thread gets to it (G6)."""
        return not isinstance(message, Delivery) or self._configured()[1].renew(message)

    def is_redelivered(self) -> bool:
        """Whether the message that this thread works on was begun before, by a worker that did not end it (G22)."""
        message: Any = CurrentMessage.get_current_message()
        return isinstance(message, Delivery) and message.claim.delivery > 1

    def after_failure(self, message: MessageProxy, error: BaseException) -> None:
        """An actor failed. When that was a database that could not serve, the message is left to its lease (A24, A46).

        Whoever takes it then delivers it under the attempt it was claimed for, so that a restart of the database costs
        no attempt. The limit of deliveries bounds the repeats.
        """
        if isinstance(message, Delivery) and is_passing(error):
            log.warning("message left to its lease", message_id=message.message_id, error=describe(error))
            message.abandoned = True

    def begin_work(self, worker_threads: int) -> None:
        """A worker of so many threads boots in this process."""
        self._worker_threads = worker_threads
        self.draining.clear()

    def begin_draining(self, worker: Worker) -> None:
        """Claims nothing more and gives back at once what no thread of the worker has started (J6)."""
        # Set first: nothing may be claimed in the place of what is given back.
        self.draining.set()
        log.info("worker draining")
        self._configured()[1].requeue(_prefetched(worker))

    def _configured(self) -> tuple[Consumption, Outcomes]:
        if self._consumption is None or self._outcomes is None:
            raise RuntimeError("the broker is used before configure(url=…, lease=…, poll=…) was called in this process")
        return self._consumption, self._outcomes


class _NoPool:
    """In the place of dramatiq-pg's psycopg2 pool, which nothing here may reach."""

    def getconn(self) -> NoReturn:
        raise RuntimeError("this broker has no psycopg2 pool: it consumes and enqueues over psycopg 3")


class _WorkerLife(Middleware):
    """Tells the broker of its worker's first and last moments, and asks before each message."""

    def before_worker_boot(self, broker: Broker, worker: Worker) -> None:
        if isinstance(broker, DetachBroker):
            broker.begin_work(worker.worker_threads)

    def after_worker_boot(self, broker: Broker, worker: Worker) -> None:
        """Health expects the queues that this worker was asked to take, and all its threads (A49)."""
        if isinstance(broker, DetachBroker):
            for queue in worker.consumers:
                broker.pulse.expect(queue)
            for thread in (*worker.workers, *worker.consumers.values()):
                broker.pulse.watch(thread)

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        if isinstance(broker, DetachBroker) and not broker.may_start(message):
            raise SkipMessage

    def after_process_message(
        self, broker: Broker, message: MessageProxy, *, result: object = None, exception: BaseException | None = None
    ) -> None:
        del result
        if isinstance(broker, DetachBroker) and exception is not None:
            broker.after_failure(message, exception)

    def before_worker_shutdown(self, broker: Broker, worker: Worker) -> None:
        if isinstance(broker, DetachBroker):
            broker.begin_draining(worker)


def _prefetched(worker: Worker) -> list[MessageProxy]:
    """Takes from the worker what lies in its memory unstarted: it would requeue that only after its last actor."""
    messages: list[MessageProxy] = []
    while True:
        try:
            _, message = worker.work_queue.get_nowait()
        except Empty:
            return messages
        messages.append(message)
        worker.work_queue.task_done()
