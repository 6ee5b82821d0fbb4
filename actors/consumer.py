"""How a worker process takes messages from the queue table and gives them back.

A message is taken by SKIP LOCKED and kept by a lease on the database's clock (G6, G11). Nothing is held between
statements: no advisory lock, no open transaction, so a dead worker leaves nothing behind but a lease that runs out.

| from     | on                                    | to       | also                                         |
|----------|---------------------------------------|----------|----------------------------------------------|
| queued   | claim                                 | consumed | deliveries + 1                               |
| consumed | claim, the lease has run out          | consumed | deliveries + 1                               |
| either   | claim, deliveries at their limit      | rejected | not decoded, not run                         |
| consumed | ack of this very claim                | (gone)   |                                              |
| consumed | nack of this very claim, or not understood | rejected | the row stays for an operator to read   |
| consumed | requeue of this very claim            | queued   | deliveries - 1: it was never started         |
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import psycopg
import structlog
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.errors import ConnectionError as QueueConnectionError
from dramatiq.message import Message
from psycopg import sql

from actors.outcomes import ACK, REJECT, Claim, Delivery, Held, Outcomes, open_session
from db.connect import Session
from db.errors import describe
from db.runner.gate import BATCHES_CHANNEL

CLAIM = f"""
with due as materialized (
    select message_id from dramatiq.queue
    where queue_name = %(queue)s
      and state in ('queued', 'consumed')
      and (state = 'queued' or mtime < now() - %(lease)s)
      and message_id <> all(%(held)s::uuid[])
    order by mtime
    limit %(free)s
    for update skip locked
)
update dramatiq.queue q
set state = case when q.deliveries < %(max_deliveries)s then 'consumed' else 'rejected' end::dramatiq.state,
    deliveries = q.deliveries + 1,
    mtime = clock_timestamp()
from due
where q.message_id = due.message_id
returning q.message_id::text, q.deliveries, q.mtime, q.deliveries > %(max_deliveries)s,
    case when q.deliveries <= %(max_deliveries)s then q.message::text end, pg_notify('{BATCHES_CHANNEL}', '')
"""

DRAINING_WAIT_SECONDS = 0.2

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Consumption:
    """How a process consumes: where from, how long a claim is its own, how often it looks without being told."""

    url: str
    lease: timedelta
    poll: timedelta
    slots: int | None
    max_deliveries: int


class LeaseConsumer(Consumer):
    """Takes messages of one queue, never more than the process has free slots for.

    NOTIFY only shortens the wait: beside it the consumer looks each `poll`, which also finds leases that ran out.
    """

    def __init__(
        self,
        queue: str,
        consumption: Consumption,
        *,
        slots: int,
        wait: timedelta,
        held: Held,
        outcomes: Outcomes,
        draining: Event,
        beat: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._consumption = consumption
        self._slots = slots
        self._wait = wait.total_seconds()
        self._held = held
        self._outcomes = outcomes
        self._draining = draining
        self._beat = beat
        self._taken: deque[Delivery] = deque()
        self._connection: Session | None = None
        self._next_look = 0.0

    def __next__(self) -> Delivery | None:
        """The next message, or None after at most the worker's timeout.

        Raises dramatiq's ConnectionError when the database is away; dramatiq then makes a new consumer in 3 s.
        """
        if self._draining.is_set():
            self._beat(self._queue)
            self._give_back()
            self._held.wait(DRAINING_WAIT_SECONDS)
            return None
        if not self._taken:
            self._look()
        self._beat(self._queue)  # only after a look that succeeded (G29)
        return self._taken.popleft() if self._taken and not self._draining.is_set() else None

    def ack(self, message: Delivery) -> None:
        """Deletes the message, if it still is this claim's. Raises as `Outcomes.settle`."""
        self._outcomes.settle(message, ACK)

    def nack(self, message: Delivery) -> None:
        """Rejects the message, if it still is this claim's, with the traceback it failed with; the row stays."""
        self._outcomes.settle(message, REJECT, message.options.get("traceback"))

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Gives back messages that were not started."""
        self._outcomes.requeue(messages)

    def close(self) -> None:
        """Gives back what was taken and not handed on, and closes the connection."""
        self._give_back()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _give_back(self) -> None:
        self._outcomes.requeue(self._taken)
        self._taken.clear()

    def _look(self) -> None:
        held = self._held.of(self._queue)
        free = self._slots - len(held)
        if free <= 0:
            self._held.wait_below(self._queue, self._slots, self._wait)
            return
        try:
            connection = self._listening()
            if monotonic() >= self._next_look or self._told(connection):
                self._claim(connection, held, free)
        except psycopg.Error as error:
            # Whatever it means, the look is repeated in a new session: no statement of it carries anybody's data.
            raise ConnectionClosed(describe(error)) from error  # type: ignore[no-untyped-call]

    def _listening(self) -> Session:
        if self._connection is None:
            self._connection = open_session(self._consumption.url)
            self._connection.execute(sql.SQL("listen {}").format(sql.Identifier(enqueue_channel(self._queue))))
        return self._connection

    def _told(self, connection: Session) -> bool:
        """Whether a NOTIFY came within the worker's timeout, or the poll fell due."""
        until_poll = self._next_look - monotonic()
        notified = list(connection.notifies(timeout=max(0.0, min(self._wait, until_poll)), stop_after=1))
        return bool(notified) or monotonic() >= self._next_look

    def _claim(self, connection: Session, held: list[str], free: int) -> None:
        consumption = self._consumption
        asked = monotonic()
        rows = connection.execute(
            CLAIM.encode(),
            {
                "queue": self._queue,
                "lease": consumption.lease,
                "held": held,
                "free": free,
                "max_deliveries": consumption.max_deliveries,
            },
        ).fetchall()
        # A full hand means that more may lie there: look again as soon as a slot is free.
        self._next_look = asked if len(rows) == free else asked + consumption.poll.total_seconds()
        for message_id, delivery, claimed_at, exhausted, body, _ in rows:
            if exhausted:
                log.error("message rejected", message_id=message_id, queue=self._queue, reason="deliveries exhausted")
                continue
            expires = asked + consumption.lease.total_seconds()
            claim = Claim(message_id, self._queue, delivery, claimed_at, expires)
            self._held.add(self._queue, message_id)
            self._take(claim, body)

    def _take(self, claim: Claim, body: str | None) -> None:
        try:
            self._taken.append(Delivery(understood(claim, body), claim))
        except DecodeError as error:
            reason = f"not understood: {error}"
            log.error("message rejected", message_id=claim.message_id, queue=claim.queue_name, reason=reason)  # noqa: TRY400 - a traceback would tell nothing more
            nothing: Message[Any] = Message(claim.queue_name, "", (), {}, {}, message_id=claim.message_id)
            try:
                self._outcomes.settle(Delivery(nothing, claim), REJECT)
            except QueueConnectionError:
                # Left to its lease: the next delivery rejects it, the limit of deliveries at the latest.
                self._held.release([claim.message_id])


def enqueue_channel(queue: str) -> str:
    """The channel that tells of new messages in the queue, as dramatiq-pg names it."""
    return f"dramatiq.{queue}.enqueue"


def understood(claim: Claim, body: str | None) -> Message[Any]:
    """The message in a claimed row.

    Raises dramatiq's DecodeError for what would make a thread of the worker fall over it: fields missing or of other
    types, another id or queue than the row's, an eta (there are no delay queues).
    """
    message: Message[Any] = Message.decode((body or "null").encode())
    fields: dict[str, object] = message.asdict()
    broken = [
        f"{name} must be {wanted!r}, as its row has it"
        for name, wanted in (("message_id", claim.message_id), ("queue_name", claim.queue_name))
        if fields[name] != wanted
    ]
    broken += [
        f"{name} must be of type {wanted.__name__}"
        for name, wanted in (("actor_name", str), ("kwargs", dict), ("options", dict))
        if not isinstance(fields[name], wanted)
    ]
    if not broken and "eta" in message.options:
        broken.append("there are no delay queues, so options must have no eta")
    if broken:
        raise DecodeError("; ".join(broken), body, None)  # type: ignore[no-untyped-call]
    return message
