"""Detach calls, a batch at a time: each has a reply whatever happens, by its own deadline and the batch's (A6, A60).

The calls are made on the wire's loop; the caller waits on its own thread and answers for itself once the last moment of
the batch has passed, however the loop fares.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import msgspec
from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.clock import utc_now
from pin.outgoing.client import Answer
from pin.outgoing.errors import CannotSend, Closed, OutgoingError, TookTooLong
from pin.outgoing.operations import DETACH, NETWORK, TIMEOUT, observe_exchanges, outcome_of
from pin.outgoing.tokens import Bearer, TokenError, TokenSource
from pin.outgoing.wire import Wire
from pin.rules.contract import DETACH_PATH
from pin.rules.outbox import ErrorClass, Reply, Verdict
from pin.rules.replies import MAX_REPLY_BYTES, read_detach_reply, same_for_every_row
from pin.telemetry import traces

GRACE = 0.1
"""Seconds after the last call's deadline in which the loop may still say itself what came of it."""

_BEFORE_ID, _, _AFTER_ID = DETACH_PATH.partition("{id}")
_ENCODER = msgspec.json.Encoder()
_UNAUTHORIZED = 401
_NEARLY = 0.005  # seconds


@dataclass(frozen=True, slots=True)
class DetachCall:
    """One call to make. `attempts` and the job's `run_id` only name the call in its trace (J26, J31)."""

    snapshot_id: UUID
    reason: str
    requested_by_user_id: UUID
    attempts: int = 0
    run_id: UUID | None = None


class DetachBatch:
    """The calls of one batch and what came of each; used once."""

    def __init__(
        self,
        wire: Wire,
        tokens: TokenSource,
        calls: Sequence[DetachCall],
        *,
        call_timeout: timedelta,
        deadline: float,
        stopping: Callable[[], bool],
    ) -> None:
        self._wire = wire
        self._bearer = Bearer(tokens)
        self._calls = calls
        self._waiting = iter(range(len(calls)))
        self._call_timeout = call_timeout
        self._limit = call_timeout.total_seconds()
        self._deadline = deadline
        self._stopping = stopping
        self._collected = traces.collecting()
        self._carrier = tuple(traces.carrier().items())
        self._refused = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._left_behind = False
        self._began: list[float | None] = [None] * len(calls)
        self._ended: list[float] = [0.0] * len(calls)
        self._came: list[Answer | Exception | None] = [None] * len(calls)
        self._asked_again: dict[int, float] = {}

    def run(self, concurrency: int) -> list[Reply | None]:
        """Make the calls, `concurrency` at a time; replies in their order, None for one that was not made."""
        lanes = min(concurrency, len(self._calls))
        rounds = -(-len(self._calls) // lanes)
        last_moment = min(self._deadline, time.monotonic() + rounds * self._limit)
        try:
            cancel = self._wire.start(lambda: self._all(lanes))
        except Closed:
            return [None] * len(self._calls)
        if not self._over.wait(timeout=max(0.0, last_moment - time.monotonic()) + GRACE):
            cancel()
        return self._replies()

    def _replies(self) -> list[Reply | None]:
        """What came of each call until now: one that began and has no answer took too long. No other begins."""
        with self._lock:
            self._left_behind = True
            came = list(self._came)
        observations: list[tuple[str, float]] = []
        replies = [self._reply(index, each, observations) for index, each in enumerate(came)]
        observe_exchanges(DETACH, observations)
        return replies

    def _reply(
        self, index: int, came: Answer | Exception | None, observations: list[tuple[str, float]]
    ) -> Reply | None:
        began = self._began[index]
        if began is None:
            return None
        ended = self._ended[index] or time.monotonic()
        came = came or TookTooLong()
        if not isinstance(came, TokenError | CannotSend):
            observations.append((_outcome(came), ended - self._asked_again.get(index, began)))
        duration = timedelta(seconds=ended - began)
        if isinstance(came, Exception):
            return Reply(*_unanswered(came), duration=duration)
        try:
            return read_detach_reply(self._calls[index].snapshot_id, *came, utc_now(), duration)
        except Exception as error:  # noqa: BLE001 - a call's failure is contained: it has an outcome (A6)
            return Reply(*_unanswered(error), duration=duration)

    async def _all(self, lanes: int) -> None:
        try:
            await asyncio.gather(*(self._lane() for _ in range(lanes)))
        finally:
            self._over.set()

    async def _lane(self) -> None:
        for index in self._waiting:
            if not self._begin(index):
                return
            came: Answer | Exception
            try:
                came = await (self._spanned(index) if self._collected else self._asked(index))
            except Exception as error:  # noqa: BLE001 - the one place where a call's failure is contained: it has an outcome
                came = error
            self._ended[index] = time.monotonic()
            self._came[index] = came
            if same_for_every_row(came.status) if isinstance(came, Answer) else isinstance(came, TokenError):
                self._refused = True

    def _begin(self, index: int) -> bool:
        """Whether the call may be made; from now on it counts as made."""
        if self._refused or self._wire.closed or self._stopping():
            return False
        with self._lock:
            now = time.monotonic()
            if self._left_behind or now >= self._deadline:
                return False
            self._began[index] = now
            return True

    async def _asked(self, index: int) -> Answer:
        """The answer to one call; a 401 renews the token and is asked once more (A8)."""
        call = self._calls[index]
        # A reason this release does not know is sent as it stands: to know it is for selections to say (D14).
        body = _ENCODER.encode({"reason": call.reason, "requestedByUserId": call.requested_by_user_id})
        path = f"{_BEFORE_ID}{call.snapshot_id}{_AFTER_ID}"
        sent = self._bearer.at_hand() or await self._fetched(index)
        answer = await self._exchange(path, body, sent, index)
        if answer.status == _UNAUTHORIZED:
            refused_at = time.monotonic()
            self._bearer.refuse(sent)
            again = self._bearer.at_hand() or await self._fetched(index)
            if again == sent:  # there is no other token yet
                return answer
            observe_exchanges(DETACH, [(_outcome(answer), refused_at - (self._began[index] or refused_at))])
            self._asked_again[index] = time.monotonic()
            answer = await self._exchange(path, body, again, index)
        return answer

    async def _fetched(self, index: int) -> str:
        """A token that must be fetched first: on another thread, so that it does not hold up the calls of others."""
        async with asyncio.timeout(self._left(index).total_seconds()):
            return await asyncio.to_thread(self._bearer.fetched)

    async def _exchange(self, path: str, body: bytes, authorization: str, index: int) -> Answer:
        """One request and its answer; a span of its own where somebody collects them."""
        within = self._left(index)
        if not self._collected:
            return await self._wire.post(path, authorization, body, self._carrier, within=within, cap=MAX_REPLY_BYTES)
        attributes: dict[str, str | int] = {"http.request.method": DETACH.method, "url.template": DETACH.route}
        with traces.span(f"{DETACH.method} {DETACH.route}", kind=SpanKind.CLIENT, attributes=attributes) as calling:
            carrier = traces.carrier().items()
            answer = await self._wire.post(path, authorization, body, carrier, within=within, cap=MAX_REPLY_BYTES)
            calling.set_attribute("http.response.status_code", answer.status)
            if answer.status >= 400:  # noqa: PLR2004 - where a client's span is an error, by OpenTelemetry
                calling.set_status(Status(StatusCode.ERROR))
            return answer

    async def _spanned(self, index: int) -> Answer:
        """The same, in the span of an attempt (J26)."""
        call = self._calls[index]
        attributes: dict[str, str | int] = {"snapshotId": str(call.snapshot_id), "attempts": call.attempts}
        if call.run_id is not None:
            attributes |= {"jobRunId": str(call.run_id), "correlationId": str(call.run_id), "actor": "system"}
        with traces.span("detach attempt", attributes=attributes) as span:
            try:
                answer = await self._asked(index)
            except Exception as error:
                span.set_attribute("verdict", _unanswered(error)[0].value)
                raise
            reply = read_detach_reply(call.snapshot_id, *answer, utc_now())
            span.set_attribute("verdict", reply.verdict.value)
            return answer

    def _left(self, index: int) -> timedelta:
        """The time that one exchange of this call has. Raises TookTooLong when there is none."""
        until = min((self._began[index] or 0.0) + self._limit, self._deadline)
        left = until - time.monotonic()
        if left <= 0:
            raise TookTooLong
        # Nearly every call has all of its limit: that one object serves them all, a few milliseconds too long.
        return self._call_timeout if self._limit - left < _NEARLY else timedelta(seconds=left)


def _outcome(came: Answer | Exception) -> str:
    """What came of an exchange, in metrics."""
    if isinstance(came, Answer):
        return outcome_of(came.status)
    return TIMEOUT if isinstance(came, TookTooLong | TimeoutError) else NETWORK


def _unanswered(error: Exception) -> tuple[Verdict, str]:
    """Verdict and error of a call that has no answer."""
    match error:
        case OutgoingError():
            return Verdict.TRANSIENT, str(error)
        case TimeoutError():
            return Verdict.TRANSIENT, ErrorClass.TIMEOUT
        case TokenError():
            return Verdict.REFUSED, ErrorClass.CREDENTIAL
        case _:
            return Verdict.TRANSIENT, f"{ErrorClass.CLIENT} {type(error).__name__}"
