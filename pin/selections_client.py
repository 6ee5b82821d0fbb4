"""News speaks to selections: create, get and detach snapshots over HTTP. The only module that knows httpx.

Callers are synchronous; the calls of one request or one batch wait side by side on an event loop of the client's own
thread. Every call has a total deadline, not a limit a read (A4). Redirects are not followed, cookies not kept, proxies
and other settings of the environment not heeded.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import aiohttp
import httpx
import msgspec
import uvloop
from httpx_aiohttp import AiohttpTransport
from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.clock import utc_now
from pin.contract import (
    DETACH_PATH,
    SNAPSHOT_PATH,
    SNAPSHOTS_PATH,
    CreateSnapshotRequest,
    ErrorCode,
    Snapshot,
    SnapshotPage,
)
from pin.outbox import ErrorClass, Reply, Verdict
from pin.replies import is_json, read_detach_reply
from pin.telemetry import metrics, traces
from pin.tokens import TokenError, TokenSource

T = TypeVar("T")
R = TypeVar("R")

_KEEP_ALIVE = 2.0  # seconds; below the server's own, so that a call seldom meets a connection being closed (A5)
_CLOSING = 2.0  # seconds that calls in flight have to notice that their connection is gone
_MAX_BODY_BYTES = 4 * 1024 * 1024  # above the largest snapshot; reading stops there
_UNAUTHORIZED = 401
_ENCODER = msgspec.json.Encoder()


class SelectionsUnavailable(Exception):  # noqa: N818 - a state of the other side, not a fault here
    """Selections did not give an answer of the contract in time; `str()` is class and code alone."""


class SnapshotRefused(Exception):  # noqa: N818 - an answer, not a fault
    """Selections refused to create a snapshot, with a code of the contract."""

    def __init__(self, snapshot_id: UUID, code: str) -> None:
        super().__init__(code)
        self.snapshot_id = snapshot_id
        self.code = code


@dataclass(frozen=True, slots=True)
class DetachCall:
    """One call to make. `attempts` only names the call in its trace (J26)."""

    snapshot_id: UUID
    reason: str
    requested_by_user_id: UUID
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class _Operation:
    """What a request is called in metrics and spans."""

    name: str
    method: str
    route: str


_CREATE = _Operation("create", "POST", SNAPSHOTS_PATH)
_GET = _Operation("get", "GET", SNAPSHOT_PATH)
_LIST = _Operation("list", "GET", SNAPSHOTS_PATH)
_DETACH = _Operation("detach", "POST", DETACH_PATH)
_NETWORK, _TIMEOUT = "network", "timeout"
metrics.declare(
    metrics.CLIENT_SECONDS,
    [operation.name for operation in (_CREATE, _GET, _LIST, _DETACH)],
    ["2xx", "4xx", "5xx", _NETWORK, _TIMEOUT],
)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    media_type: str
    body: bytes
    retry_after: tuple[str, ...]


def never() -> bool:
    """Nobody asks to stop."""
    return False


class SelectionsClient:
    """Thread-safe; opens nothing before its first call. `concurrency` bounds the calls in flight of one batch."""

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

    def detach_all(
        self,
        calls: Sequence[DetachCall],
        *,
        call_timeout: timedelta,
        deadline: float,
        stopping: Callable[[], bool] = never,
    ) -> list[Reply | None]:
        """Make the calls; answers in their order, None for a call that was not started.

        None is started once `stopping()` holds, the monotonic `deadline` has passed, or a call met 401 or 403, which
        would meet every other as well (G3). A call on the wire ends by `call_timeout` and by `deadline`, and has a
        reply whatever happens (A6).
        """
        limit = call_timeout.total_seconds()

        async def all_calls() -> list[Reply | None]:
            refused = asyncio.Event()

            async def one(call: DetachCall) -> Reply | None:
                left = deadline - time.monotonic()
                if refused.is_set() or left <= 0 or stopping():
                    return None
                reply = await self._detach(call, min(limit, left))
                if reply.verdict is Verdict.REFUSED:
                    refused.set()
                return reply

            return await self._side_by_side(one, calls)

        return self._run(all_calls)

    def create_snapshots(self, requests: Sequence[CreateSnapshotRequest], *, deadline: float) -> list[Snapshot]:
        """Create these snapshots, ids chosen by the caller (G13); answers in order.

        Raises SnapshotRefused for a refusal with a code of the contract, else SelectionsUnavailable; some of the
        snapshots may exist then, or come to exist later.
        """

        async def one(request: CreateSnapshotRequest) -> Snapshot:
            answer = await self._answer_by(deadline, _CREATE, SNAPSHOTS_PATH, _ENCODER.encode(request))
            if answer.status in {200, 201}:
                snapshot = _decoded(answer, Snapshot)
                if snapshot is not None and snapshot.snapshot_id == request.snapshot_id:
                    return snapshot
                raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
            code = _code_of(answer)
            if code is not None and answer.status in {400, 404, 409}:
                raise SnapshotRefused(request.snapshot_id, code)
            raise SelectionsUnavailable(f"HTTP {answer.status}")

        return self._run(lambda: self._side_by_side(one, requests))

    def get_snapshots(self, ids: Iterable[UUID], *, deadline: float) -> dict[UUID, Snapshot]:
        """These snapshots, in any status; what is unknown or cannot be had by the monotonic `deadline` is absent."""

        async def one(snapshot_id: UUID) -> Snapshot | None:
            try:
                answer = await self._answer_by(deadline, _GET, SNAPSHOT_PATH.replace("{id}", str(snapshot_id)))
            except SelectionsUnavailable:
                return None
            snapshot = _decoded(answer, Snapshot) if answer.status == 200 else None  # noqa: PLR2004
            return snapshot if snapshot is not None and snapshot.snapshot_id == snapshot_id else None

        wanted = list(dict.fromkeys(ids))
        found = self._run(lambda: self._side_by_side(one, wanted)) if wanted else []
        return {snapshot.snapshot_id: snapshot for snapshot in found if snapshot is not None}

    def find_snapshots(self, ids: Iterable[UUID], *, deadline: float) -> dict[UUID, Snapshot | None]:
        """These snapshots; None for one that selections says it does not have. Raises SelectionsUnavailable."""

        async def one(snapshot_id: UUID) -> Snapshot | None:
            answer = await self._answer_by(deadline, _GET, SNAPSHOT_PATH.replace("{id}", str(snapshot_id)))
            if answer.status == 404 and _code_of(answer) == ErrorCode.SELECTIONS_SNAPSHOT_NOT_FOUND:  # noqa: PLR2004
                return None
            if answer.status != 200:  # noqa: PLR2004
                raise SelectionsUnavailable(f"HTTP {answer.status}")
            snapshot = _decoded(answer, Snapshot)
            if snapshot is None or snapshot.snapshot_id != snapshot_id:
                raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
            return snapshot

        wanted = list(dict.fromkeys(ids))
        found = self._run(lambda: self._side_by_side(one, wanted)) if wanted else []
        return dict(zip(wanted, found, strict=True))

    def list_snapshots(self, *, after: UUID | None, limit: int, deadline: float) -> SnapshotPage:
        """A page of all the snapshots by their ids, those after `after`. Raises SelectionsUnavailable."""

        async def page() -> SnapshotPage:
            query = f"?limit={limit}" + (f"&after={after}" if after else "")
            answer = await self._answer_by(deadline, _LIST, SNAPSHOTS_PATH + query)
            if answer.status != 200:  # noqa: PLR2004
                raise SelectionsUnavailable(f"HTTP {answer.status}")
            found = _decoded(answer, SnapshotPage)
            if found is None:
                raise SelectionsUnavailable(ErrorClass.INVALID_RESPONSE)
            return found

        return self._run(page)

    async def _detach(self, call: DetachCall, timeout: float) -> Reply:  # noqa: ASYNC109 - a total deadline
        started = time.monotonic()
        attributes: dict[str, str | int] = {"snapshotId": str(call.snapshot_id), "attempts": call.attempts}
        with traces.span("detach attempt", attributes=attributes) as span:
            reply = await self._detach_reply(call, timeout)
            span.set_attribute("verdict", reply.verdict.value)
        return replace(reply, duration=timedelta(seconds=time.monotonic() - started))

    async def _detach_reply(self, call: DetachCall, timeout: float) -> Reply:  # noqa: ASYNC109
        try:
            async with asyncio.timeout(timeout):
                # A reason this release does not know is sent as it stands: to know it is for selections to say (D14).
                body = _ENCODER.encode({"reason": call.reason, "requestedByUserId": call.requested_by_user_id})
                answer = await self._answer(_DETACH, DETACH_PATH.replace("{id}", str(call.snapshot_id)), body)
            return read_detach_reply(
                call.snapshot_id, answer.status, answer.media_type, answer.body, answer.retry_after, utc_now()
            )
        except TimeoutError:  # httpx has no limits of its own here; its transport calls a refusal a ConnectTimeout
            return Reply(Verdict.TRANSIENT, ErrorClass.TIMEOUT)
        except TokenError:
            return Reply(Verdict.REFUSED, ErrorClass.CREDENTIAL)
        except (httpx.TransportError, aiohttp.ClientConnectionError, OSError):
            return Reply(Verdict.TRANSIENT, ErrorClass.NETWORK)
        except (aiohttp.ClientResponseError, aiohttp.http.HttpProcessingError):
            return Reply(Verdict.TRANSIENT, ErrorClass.INVALID_RESPONSE)
        except Exception as error:  # noqa: BLE001 - the one place where a call's failure is contained: it has an outcome
            return Reply(Verdict.TRANSIENT, f"{ErrorClass.CLIENT} {type(error).__name__}")

    async def _answer_by(self, deadline: float, operation: _Operation, path: str, body: bytes = b"") -> _Answer:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await self._answer(operation, path, body)
        except TimeoutError as error:
            raise SelectionsUnavailable(ErrorClass.TIMEOUT) from error
        except TokenError as error:
            raise SelectionsUnavailable(ErrorClass.CREDENTIAL) from error
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, ValueError) as error:
            raise SelectionsUnavailable(ErrorClass.NETWORK) from error

    async def _answer(self, operation: _Operation, path: str, body: bytes = b"") -> _Answer:
        """One exchange; a 401 renews the token and is asked once more (A8)."""
        token = await self._token()
        answer = await self._exchange(operation, path, body, token)
        if answer.status == _UNAUTHORIZED:
            if self._tokens.at_hand() == token:
                self._tokens.refresh()
            answer = await self._exchange(operation, path, body, await self._token())
        return answer

    async def _token(self) -> str:
        """A token; one that must be fetched first does not hold up the calls of others."""
        token = self._tokens.at_hand()
        return token if token is not None else await asyncio.to_thread(self._tokens.token)

    async def _exchange(self, operation: _Operation, path: str, body: bytes, token: str) -> _Answer:
        """One request and its answer: a span, and an observation by what came of it."""
        started, outcome = time.monotonic(), _NETWORK
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
            outcome = _TIMEOUT  # the total deadline; a client that is closed under its calls is counted so as well
            raise
        finally:
            metrics.CLIENT_SECONDS.labels(operation.name, outcome).observe(time.monotonic() - started)

    async def _send(self, method: str, path: str, body: bytes, token: str) -> _Answer:
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
        return _Answer(
            response.status_code,
            "" if encoded else response.headers.get("content-type", ""),
            bytes(received),
            tuple(response.headers.get_list("retry-after")),
        )

    async def _side_by_side(self, one: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
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

    def _run(self, work: Callable[[], Awaitable[R]]) -> R:
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


class _Coded(msgspec.Struct):
    code: str


def _decoded(answer: _Answer, kind: type[T]) -> T | None:
    if not is_json(answer.media_type):
        return None
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _code_of(answer: _Answer) -> str | None:
    coded = _decoded(answer, _Coded)
    known: Any = {code.value for code in ErrorCode}
    return coded.code if coded is not None and coded.code in known else None
