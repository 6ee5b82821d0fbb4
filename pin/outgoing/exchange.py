"""One exchange with selections: a request and its answer, on an event loop of the client's own thread.

Callers are synchronous; the calls of one request or one batch wait side by side. Redirects are not followed, cookies
not kept, proxies and other settings of the environment not heeded. The only module that knows httpx.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
import httpx
import uvloop
from httpx_aiohttp import AiohttpTransport
from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.outgoing.tokens import TokenSource
from pin.telemetry import metrics, traces

T = TypeVar("T")
R = TypeVar("R")

_KEEP_ALIVE = 2.0  # seconds; below the server's own, so that a call seldom meets a connection being closed (A5)
_CLOSING = 2.0  # seconds that calls in flight have to notice that their connection is gone
_MAX_BODY_BYTES = 4 * 1024 * 1024  # above the largest snapshot; reading stops there
_UNAUTHORIZED = 401
NETWORK, TIMEOUT = "network", "timeout"
"""What came of an exchange without an answer, in metrics."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a request is called in metrics and spans."""

    name: str
    method: str
    route: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever it is."""

    status: int
    media_type: str
    body: bytes
    retry_after: tuple[str, ...]


class Exchange:
    """Thread-safe; opens nothing before its first call. `concurrency` bounds what one caller has in flight."""

    def __init__(self, base_url: str, tokens: TokenSource, *, concurrency: int = 20, connections: int = 200) -> None:
        self._base_url = base_url.rstrip("/")
        self._tokens = tokens
        self._concurrency = concurrency
        self._connections = connections
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._http: httpx.AsyncBaseTransport | None = None

    def close(self) -> None:
        """End the loop's thread and its connections. Calls in flight end with an error."""
        with self._starting:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._close_http(), loop).result(timeout=5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5)
        loop.close()

    async def answer(self, operation: Operation, path: str, body: bytes = b"") -> Answer:
        """One exchange; a 401 renews the token and is asked once more (A8)."""
        token = await self._token()
        answer = await self._exchange(operation, path, body, token)
        if answer.status == _UNAUTHORIZED:
            if self._tokens.at_hand() == token:
                self._tokens.refresh()
            answer = await self._exchange(operation, path, body, await self._token())
        return answer

    async def side_by_side(self, one: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """`one` of each item, at most `concurrency` at a time, results in order. The first exception is raised."""
        results: dict[int, R] = {}
        waiting = iter(enumerate(items))

        async def lane() -> None:
            for index, item in waiting:
                results[index] = await one(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, len(items))):
                group.create_task(lane())
        return [results[index] for index in range(len(items))]

    def run(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run on the client's loop, inside the caller's trace."""

        async def unwrapped() -> R:
            try:
                return await work()
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from group

        return asyncio.run_coroutine_threadsafe(unwrapped(), self._running_loop()).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = uvloop.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="selections-client", daemon=True)
                self._thread.start()
                asyncio.run_coroutine_threadsafe(self._open_http(), self._loop).result(timeout=10)
            return self._loop

    async def _open_http(self) -> None:
        def session() -> aiohttp.ClientSession:
            connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_KEEP_ALIVE)
            return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

        # Without httpx.AsyncClient above it: what that adds (redirects, cookies, merging) is not wanted here and takes
        # 40% of a call's processor time. The deadline is asyncio.timeout.
        self._http = AiohttpTransport(client=session, trust_env=False)

    async def _close_http(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
        if in_flight := asyncio.all_tasks() - {asyncio.current_task()}:
            _, hanging = await asyncio.wait(in_flight, timeout=_CLOSING)
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)

    async def _token(self) -> str:
        """A token; one that must be fetched first does not hold up the calls of others."""
        token = self._tokens.at_hand()
        return token if token is not None else await asyncio.to_thread(self._tokens.token)

    async def _exchange(self, operation: Operation, path: str, body: bytes, token: str) -> Answer:
        """One request and its answer: a span, and an observation by what came of it."""
        started, outcome = time.monotonic(), NETWORK
        attributes: dict[str, str | int] = {"http.request.method": operation.method, "url.template": operation.route}
        name = f"{operation.method} {operation.route}"
        try:
            with traces.span(name, kind=SpanKind.CLIENT, attributes=attributes) as calling:
                answer = await self._send(operation.method, path, body, token)
                outcome = f"{answer.status // 100}xx"
                calling.set_attribute("http.response.status_code", answer.status)
                if answer.status >= 400:  # noqa: PLR2004 - where a client's span is an error, by OpenTelemetry
                    calling.set_status(Status(StatusCode.ERROR))
                return answer
        except asyncio.CancelledError:
            outcome = TIMEOUT  # the total deadline; a client that is closed under its calls is counted so as well
            raise
        finally:
            metrics.CLIENT_SECONDS.labels(operation.name, outcome).observe(time.monotonic() - started)

    async def _send(self, method: str, path: str, body: bytes, token: str) -> Answer:
        headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity", **traces.carrier()}
        if body:
            headers["content-type"] = "application/json"
        http = self._http
        if http is None:
            raise httpx.TransportError("the client is closed")
        request = httpx.Request(method, self._base_url + path, content=body or None, headers=headers)
        response = await http.handle_async_request(request)
        received = bytearray()
        try:
            async for chunk in response.aiter_raw():
                received += chunk
                if len(received) > _MAX_BODY_BYTES:
                    break
        finally:
            await response.aclose()
        encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
        return Answer(
            response.status_code,
            "" if encoded else response.headers.get("content-type", ""),
            bytes(received),
            tuple(response.headers.get_list("retry-after")),
        )
