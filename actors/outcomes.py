"""What a process holds of the queue, and how it writes what became of it.

Every outcome is one statement, fenced by the claim it ends: a worker whose lease ran out cannot end the delivery of
whoever took the message after it (G6).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Condition, Event, Lock
from time import monotonic
from typing import Any

import psycopg
import structlog
from dramatiq.broker import MessageProxy
from dramatiq.errors import ConnectionClosed
from dramatiq.errors import ConnectionError as QueueConnectionError
from dramatiq.message import Message

from db.connect import OF_THE_QUEUE, Session, connect
from db.errors import describe, is_passing
from db.runner.gate import BATCHES_CHANNEL
from pin.config.sections import FRESH

# The claim's own time stamp is part of the fence: a requeue gives the delivery's number back, so the number alone
# would let a repeated statement undo the claim of whoever took the message next.
FENCE = "message_id = %(message_id)s and state = 'consumed' and deliveries = %(delivery)s and mtime = %(claimed_at)s"

ACK = f"delete from dramatiq.queue where {FENCE} returning pg_notify('{BATCHES_CHANNEL}', '')"

REJECT = f"""
update dramatiq.queue
set state = 'rejected', mtime = clock_timestamp(),
    message = case when %(traceback)s::text is null then message
              else jsonb_set(message, '{{options,traceback}}', to_jsonb(%(traceback)s::text)) end
where {FENCE} returning pg_notify('{BATCHES_CHANNEL}', '')
"""

# mtime stays: the message keeps its place before what was enqueued since.
REQUEUE = """
update dramatiq.queue q
set state = 'queued', deliveries = q.deliveries - 1
from unnest(%(ids)s::uuid[], %(deliveries)s::int[], %(claimed)s::timestamptz[]) as mine (id, delivery, claimed_at)
where q.message_id = mine.id and q.state = 'consumed' and q.deliveries = mine.delivery and q.mtime = mine.claimed_at
returning pg_notify('dramatiq.' || q.queue_name || '.enqueue', '')
"""

RENEW = f"update dramatiq.queue set mtime = clock_timestamp() where {FENCE} returning mtime"

TRACEBACK_LIMIT = 4_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Claim:
    """What one claim took: the row, as which delivery, and when by the database's clock (which fences the outcome)."""

    message_id: str
    queue_name: str
    delivery: int
    claimed_at: datetime
    expires: float
    """The end of the lease on this process' monotonic clock, in seconds; never later than by the database's."""


class Delivery(MessageProxy):
    """A decoded message with the claim that took it."""

    def __init__(self, message: Message[Any], claim: Claim) -> None:
        super().__init__(message)  # type: ignore[no-untyped-call]
        self.claim = claim
        self.abandoned = False
        """Whether it is left to its lease, or to who has it by now: then no outcome is written."""


class Held:
    """The messages this process has claimed and not ended yet.

    Outlives consumers: one that is replaced after a broken connection must neither count the slots anew nor take
    again what a thread of this process still works on.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._queue_of: dict[str, str] = {}

    def add(self, queue: str, message_id: str) -> None:
        """A message of the queue was claimed."""
        with self._changed:
            self._queue_of[message_id] = queue

    def release(self, message_ids: Iterable[str]) -> None:
        """The messages are ended, given back or left to their lease; wakes who waits for a slot."""
        with self._changed:
            for message_id in message_ids:
                self._queue_of.pop(message_id, None)
            self._changed.notify_all()

    def of(self, queue: str) -> list[str]:
        """The ids held of the queue."""
        with self._changed:
            return [message_id for message_id, its_queue in self._queue_of.items() if its_queue == queue]

    def wait(self, seconds: float) -> None:
        """Blocks until a message is released, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def wait_below(self, queue: str, limit: int, seconds: float) -> None:
        """Blocks until fewer than `limit` messages of the queue are held, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: list(self._queue_of.values()).count(queue) < limit, seconds)


def open_session(url: str) -> Session:
    """An autocommit session of the queue's, whose every wait is bounded. Raises as `db.connect.connect`."""
    return connect(url, application_name="pin-worker-queue", limits=OF_THE_QUEUE, autocommit=True)


class Outcomes:
    """Writes what became of claimed messages, each in one fenced statement, over a connection opened when needed."""

    def __init__(self, url: str, lease: timedelta, held: Held, draining: Event) -> None:
        self._url = url
        self._lease = lease.total_seconds()
        self._held = held
        self._draining = draining
        self._lock = Lock()
        self._connection: Session | None = None

    def settle(self, message: Delivery, statement: str, traceback: str | None = None) -> None:
        """Ends a message; a claim that has been overtaken changes nothing (J12: one short statement, no transaction).

        Raises dramatiq's ConnectionError, upon which dramatiq repeats the call in 5 s. Not once the lease has run out
        or the process is to end: then the message is left to its lease, and whoever takes it finds its work done.
        """
        claim = message.claim
        if message.abandoned:
            self._held.release([claim.message_id])
            return
        clean = traceback and traceback.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[-TRACEBACK_LIMIT:]
        try:
            if not self._run(statement, {**_fence(claim), "traceback": clean}).rowcount:
                log.warning("message outcome stale", message_id=claim.message_id, delivery=claim.delivery)
        except QueueConnectionError as error:
            if monotonic() < claim.expires and not self._draining.is_set():
                raise
            log.warning("message outcome lost", message_id=claim.message_id, error=str(error))
        except BaseException:
            self._held.release([claim.message_id])
            raise
        self._held.release([claim.message_id])

    def renew(self, message: Delivery) -> bool:
        """Whether a message about to start is still this process', with a lease that starts now.

        A lease starts at the claim, and a message may have waited for a thread since. False: it must not start.
        """
        claim, asked = message.claim, monotonic()
        if claim.expires - asked > FRESH * self._lease:
            return True
        try:
            rows = self._run(RENEW, {**_fence(claim)}).fetchall()
        except QueueConnectionError:
            rows = []
        if not rows:
            log.warning("message not started", message_id=claim.message_id, delivery=claim.delivery)
            message.abandoned = True
            return False
        message.claim = replace(claim, claimed_at=rows[0][0], expires=asked + self._lease)
        return True

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Gives back messages that were not started, delivery included, and wakes an idle worker (J6).

        Without the database they stay to their lease.
        """
        claims = [message.claim for message in messages if isinstance(message, Delivery)]
        if not claims:
            return
        try:
            given_back = self._run(
                REQUEUE,
                {
                    "ids": [claim.message_id for claim in claims],
                    "deliveries": [claim.delivery for claim in claims],
                    "claimed": [claim.claimed_at for claim in claims],
                },
            ).rowcount
            log.info("messages requeued", count=given_back)
        except QueueConnectionError as error:
            log.warning("messages not requeued", count=len(claims), error=str(error))
        finally:
            self._held.release(claim.message_id for claim in claims)

    def close(self) -> None:
        """Closes the connection; a later outcome opens another."""
        with self._lock:
            self._close()

    def _run(self, statement: str, parameters: dict[str, object]) -> psycopg.Cursor[tuple[Any, ...]]:
        """Tried again once, in a new session, if the error passes: the fence makes a repeat harmless (G30)."""
        with self._lock:
            try:
                return self._execute(statement, parameters)
            except psycopg.Error as error:
                self._close()
                if not is_passing(error):
                    raise
            try:
                return self._execute(statement, parameters)
            except psycopg.Error as error:
                self._close()
                if not is_passing(error):
                    raise
                raise ConnectionClosed(describe(error)) from error  # type: ignore[no-untyped-call]

    def _execute(self, statement: str, parameters: dict[str, object]) -> psycopg.Cursor[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = open_session(self._url)
        return self._connection.execute(statement.encode(), parameters)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _fence(claim: Claim) -> dict[str, object]:
    return {"message_id": claim.message_id, "delivery": claim.delivery, "claimed_at": claim.claimed_at}
