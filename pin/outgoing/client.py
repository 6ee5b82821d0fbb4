"""httpx's client within our bounds: the way out for every exchange that is not hot.

An exchange is over by its deadline whatever happens, name resolution included: the caller waits on its own thread for
the thread that makes the exchange, and leaves it behind when time is up. Redirects are not followed, cookies not kept,
proxies and other settings of the environment not heeded. The only module that knows httpx.
"""

import contextlib
import contextvars
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar

import httpcore
import httpx

from pin.outgoing.errors import BadAnswer, CannotSend, Closed, TookTooLong, Unreachable
from pin.outgoing.network import MOST_HEAD_BYTES, BoundedNetwork, Bounds, bounded

_Result = TypeVar("_Result")

_AT_ONCE = 64
"""Exchanges of one client; a resolver that hangs keeps a thread for as long as the system waits for it."""
_KEEP_ALIVE = 2.0  # seconds; below the server's own, so that a call seldom meets a connection being closed (A5)
_HIGHEST_PORT = 65535
_CHUNK_OVERHEAD = 2  # an honest server's chunks are larger than what frames them


class Answer(NamedTuple):
    """What came back, whatever it is. `body` is as it came, cut off after the cap."""

    status: int
    media_type: str
    """The Content-Type header; empty where there is none, or where the body is encoded though nobody asked for it."""
    body: bytes
    retry_after: tuple[str, ...] = ()


class HttpClient:
    """Thread-safe; opens nothing before its first exchange. Closed stays closed (A48)."""

    def __init__(self, *, at_once: int = _AT_ONCE) -> None:
        self._slots = threading.BoundedSemaphore(at_once)
        self._changing = threading.Condition()
        self._network = BoundedNetwork()
        self._closed = False
        self._waiting: set[Future[Any]] = set()
        self._http: httpx.Client | None = None

    def ask(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"", deadline: float, cap: int
    ) -> Answer:
        """One exchange, over by the monotonic `deadline`; of the body at most `cap` bytes are read.

        Raises CannotSend, Unreachable, TookTooLong or BadAnswer (`pin.outgoing.errors`). Safe to call from any thread;
        it blocks.
        """
        http = self._opened()
        request = _request(http, method, url, headers, body)
        return self.by(deadline, lambda: _exchange(http, request, deadline, cap))

    def close(self, within: float = 0.0) -> None:
        """End the exchanges under way with Closed, and the connections. May be repeated.

        Waits for the exchanges' threads up to `within` seconds; a resolver that hangs keeps its own for longer.
        """
        with self._changing:
            self._closed = True
            waiting = list(self._waiting)
            self._close_if_idle()
        for exchange in waiting:
            with contextlib.suppress(InvalidStateError):
                exchange.set_exception(Closed())
        self._network.cut()
        with self._changing:
            self._changing.wait_for(lambda: not self._waiting, timeout=within)

    def _opened(self) -> httpx.Client:
        with self._changing:
            if self._closed:
                raise Closed
            if self._http is None:
                self._http = httpx.Client(
                    transport=_BoundedTransport(self._network),
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                    follow_redirects=False,
                    trust_env=False,
                    timeout=None,  # httpx's own is 5 s a wait; the exchange's deadline is the one bound  # noqa: S113
                )
            return self._http

    def _close_if_idle(self) -> None:
        # Not under a thread that still reads: the last one closes.
        if self._closed and self._http is not None and not self._waiting:
            self._http.close()
            self._http = None

    def by(self, deadline: float, work: Callable[[], _Result]) -> _Result:
        """What `work` says, on a thread of its own. Raises TookTooLong at the deadline, whatever the thread does."""
        left = deadline - time.monotonic()
        if left <= 0 or not self._slots.acquire(timeout=left):
            raise TookTooLong
        exchange: Future[_Result] = Future()
        with self._changing:
            if self._closed:
                self._slots.release()
                raise Closed
            self._waiting.add(exchange)

        def run() -> None:
            try:
                _end(exchange, work)
            finally:
                self._slots.release()
                with self._changing:
                    self._waiting.discard(exchange)
                    self._close_if_idle()
                    self._changing.notify_all()

        threading.Thread(target=contextvars.copy_context().run, args=(run,), name="outgoing", daemon=True).start()
        try:
            return exchange.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise TookTooLong from None


def _end(exchange: Future[_Result], work: Callable[[], _Result]) -> None:
    """Do the work and say what came of it, unless the client was closed meanwhile."""
    try:
        answer = work()
    except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
        with contextlib.suppress(InvalidStateError):
            exchange.set_exception(error)
    else:
        with contextlib.suppress(InvalidStateError):
            exchange.set_result(answer)


def post(url: str, body: bytes, headers: Mapping[str, str], *, deadline: float, cap: int) -> Answer:
    """One POST on a connection of its own, over by the monotonic `deadline`; at most `cap` bytes of the body are read.

    Raises CannotSend, Unreachable, TookTooLong or BadAnswer (`pin.outgoing.errors`).
    """
    client = HttpClient(at_once=1)
    try:
        return client.ask("POST", url, headers=headers, body=body, deadline=deadline, cap=cap)
    finally:
        client.close()


def base_url_fault(url: str) -> str | None:
    """What is wrong with a URL that requests are to start with, None when nothing is."""
    try:
        return None if _is_http(httpx.URL(url)) else "InvalidURL"
    except (httpx.InvalidURL, ValueError, TypeError):
        return "InvalidURL"


def _request(http: httpx.Client, method: str, url: str, headers: Mapping[str, str], body: bytes) -> httpx.Request:
    try:
        request = http.build_request(
            method, url, content=body or None, headers={"accept-encoding": "identity", "user-agent": "pin", **headers}
        )
    except (httpx.InvalidURL, ValueError, TypeError) as error:
        raise CannotSend(type(error).__name__) from None
    if not _is_http(request.url):
        raise CannotSend("InvalidURL")
    return request


def _is_http(url: httpx.URL) -> bool:
    return url.scheme in {"http", "https"} and bool(url.host) and (url.port or 0) <= _HIGHEST_PORT


def _exchange(http: httpx.Client, request: httpx.Request, deadline: float, cap: int) -> Answer:
    bounds = Bounds(deadline, MOST_HEAD_BYTES + _CHUNK_OVERHEAD * cap)
    try:
        with bounded(bounds):
            response = http.send(request, stream=True)
            try:
                return _read(response, cap)
            finally:
                response.close()
    except (httpx.TimeoutException, httpcore.TimeoutException):
        raise TookTooLong from None
    except httpx.LocalProtocolError:
        raise CannotSend("LocalProtocolError") from None
    except httpx.RemoteProtocolError:
        if bounds.ended:
            raise Unreachable from None
        raise BadAnswer from None
    except (httpx.TransportError, OSError, UnicodeError):
        raise Unreachable from None
    except RuntimeError:  # httpx's word for a client that was closed
        raise Closed from None


def _read(response: httpx.Response, cap: int) -> Answer:
    received = bytearray()
    try:
        for chunk in response.iter_raw():
            received += chunk
            if len(received) > cap:
                break
    except BadAnswer:  # chunks that frame next to nothing; what came is cut off like any other
        pass
    encoded = response.headers.get("content-encoding", "identity").lower() != "identity"
    return Answer(
        response.status_code,
        "" if encoded else response.headers.get("content-type", ""),
        bytes(received[:cap]),
        tuple(response.headers.get_list("retry-after")),
    )


class _BoundedTransport(httpx.HTTPTransport):
    """httpx's own transport over a network that keeps our bounds.

    httpx has no parameter for the network of its pool, so that the pool is made here, as httpx makes it.
    """

    def __init__(self, network: BoundedNetwork) -> None:
        super().__init__(verify=_trusted(), trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=_trusted(),
            max_connections=None,
            keepalive_expiry=_KEEP_ALIVE,
            network_backend=network,
        )


@cache
def _trusted() -> ssl.SSLContext:
    """The system's certificate authorities, read once: reading them takes longer than an exchange."""
    return ssl.create_default_context()
