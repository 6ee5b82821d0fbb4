"""One exchange with selections that is not hot: our token, a span, an observation by what came of it."""

import contextvars
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.outgoing.client import Answer, HttpClient
from pin.outgoing.errors import TookTooLong
from pin.outgoing.operations import NETWORK, TIMEOUT, Operation, observe_exchanges, outcome_of
from pin.outgoing.tokens import Bearer, TokenSource
from pin.telemetry import traces

T = TypeVar("T")
R = TypeVar("R")

_MOST_BODY_BYTES = 4 * 1024 * 1024  # above the largest snapshot
_UNAUTHORIZED = 401
_CLOSING = 2.0  # seconds that exchanges under way have to notice that their client is closed


class Exchange:
    """Thread-safe; opens nothing before its first exchange. `connections` bounds what is under way at once."""

    def __init__(self, base_url: str, tokens: TokenSource, *, connections: int) -> None:
        self._base_url = base_url.rstrip("/")
        self._bearer = Bearer(tokens)
        self._http = HttpClient(at_once=connections)

    def close(self) -> None:
        """End the exchanges under way and the connections. May be repeated."""
        self._http.close(within=_CLOSING)

    def answer(self, operation: Operation, path: str, body: bytes = b"", *, deadline: float) -> Answer:
        """One answer by the monotonic `deadline`; a 401 renews the token and is asked once more (A8).

        Raises an OutgoingError, or TokenError when no token can be had.
        """
        sent = self._authorization(deadline)
        answer = self._exchange(operation, path, body, sent, deadline)
        if answer.status == _UNAUTHORIZED:
            self._bearer.refuse(sent)
            again = self._authorization(deadline)
            if again != sent:  # otherwise there is no other token yet
                answer = self._exchange(operation, path, body, again, deadline)
        return answer

    def _authorization(self, deadline: float) -> str:
        """The header; a token that must be fetched first is waited for until the deadline."""
        at_hand = self._bearer.at_hand()
        return at_hand if at_hand is not None else self._http.by(deadline, self._bearer.fetched)

    def _exchange(self, operation: Operation, path: str, body: bytes, authorization: str, deadline: float) -> Answer:
        started, outcome = time.monotonic(), NETWORK
        attributes: dict[str, str | int] = {"http.request.method": operation.method, "url.template": operation.route}
        try:
            with traces.span(
                f"{operation.method} {operation.route}", kind=SpanKind.CLIENT, attributes=attributes
            ) as calling:
                headers = {"authorization": authorization, **traces.carrier()}
                if body:
                    headers["content-type"] = "application/json"
                answer = self._http.ask(
                    operation.method,
                    self._base_url + path,
                    headers=headers,
                    body=body,
                    deadline=deadline,
                    cap=_MOST_BODY_BYTES,
                )
                outcome = outcome_of(answer.status)
                calling.set_attribute("http.response.status_code", answer.status)
                if answer.status >= 400:  # noqa: PLR2004 - where a client's span is an error, by OpenTelemetry
                    calling.set_status(Status(StatusCode.ERROR))
                return answer
        except TookTooLong:
            outcome = TIMEOUT
            raise
        finally:
            observe_exchanges(operation, [(outcome, time.monotonic() - started)])


def side_by_side(one: Callable[[T], R], items: Sequence[T], concurrency: int) -> list[R]:
    """`one` of each item, at most `concurrency` at a time, results in order; in the caller's trace.

    The first exception is raised at once; what is under way then ends by its own deadline.
    """
    if len(items) <= 1:
        return [one(item) for item in items]
    lanes = ThreadPoolExecutor(min(concurrency, len(items)), thread_name_prefix="outgoing-lane")
    try:
        made: list[Future[R]] = [lanes.submit(contextvars.copy_context().run, one, item) for item in items]
        wait(made, return_when=FIRST_EXCEPTION)
        if failed := next((each.exception() for each in made if each.done() and each.exception()), None):
            raise failed
        return [each.result() for each in made]
    finally:
        lanes.shutdown(wait=False, cancel_futures=True)
