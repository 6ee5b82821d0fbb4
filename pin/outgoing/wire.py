"""The hot way out: reqwest, driven from an event loop of the client's own thread. The only module that knows pyreqwest.

HTTP/1.1 alone; redirects are not followed, cookies not kept, proxies of the environment not heeded, nothing decoded.
reqwest keeps each exchange's deadline on a thread of its own, below Python, name resolution included.
"""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta

import uvloop
from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import BodyDecodeError, ClientClosedError, DecodeError, PyreqwestError, RequestTimeoutError
from pyreqwest.http import HeaderMap
from pyreqwest.response import Response

from pin.outgoing.client import Answer, base_url_fault
from pin.outgoing.errors import BadAnswer, CannotSend, Closed, OutgoingError, TookTooLong, Unreachable
from pin.outgoing.network import MOST_HEAD_BYTES

THREAD_NAME = "selections-client"

_KEEP_ALIVE = timedelta(seconds=2)  # below the server's own, so that a call seldom meets a connection being closed (A5)
_CLOSING = 2.0  # seconds that exchanges in flight have to notice that their client is closed
_SUCCESS = 200
_CUT_SHORT = "end of file before message length reached"  # hyper's word; a test holds us to it


class Wire:
    """Thread-safe; opens nothing before its first exchange. Closed stays closed: no loop is opened again (A48)."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        """`headers` go with every request. A base URL that is none is said at each exchange."""
        self._base_url = base_url.rstrip("/")
        self._fault = base_url_fault(base_url)
        self._headers = dict(headers)
        self._changing = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
        """Start `work` on the loop, in the caller's context; what is answered cancels it. Raises Closed."""
        with self._changing:
            if self._closed:
                raise Closed
            loop = self._running_loop()
            started: list[asyncio.Task[None]] = []
            loop.call_soon_threadsafe(lambda: started.append(loop.create_task(work())))

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and its tasks with it
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])

        return cancel

    @property
    def closed(self) -> bool:
        """Whether no further exchange can begin."""
        return self._closed

    async def post(
        self,
        path: str,
        authorization: str,
        body: bytes,
        more: Iterable[tuple[str, str]],
        *,
        within: timedelta,
        cap: int,
    ) -> Answer:
        """One POST, `more` being further headers; its answer by then, at most one byte more than `cap` of its body.

        Raises CannotSend, Unreachable, TookTooLong or BadAnswer (`pin.outgoing.errors`). Runs on the loop of `start`.
        """
        client = self._client
        if client is None:
            raise Closed
        if self._fault is not None:
            raise CannotSend(self._fault)
        try:
            request = client.post(self._base_url + path).body_bytes(body).timeout(within)
            request = request.header("authorization", authorization)
            for name, value in more:
                request = request.header(name, value)
            async with request.streamed_read_buffer_limit(cap + 1).build_streamed() as response:
                content = await response.body_reader.read(cap + 1)
                return _answer(response, b"" if content is None else bytes(content))
        except PyreqwestError as error:
            raise _explained(error) from None
        except ValueError as error:
            raise CannotSend(type(error).__name__) from None

    def close(self) -> None:
        """End the exchanges under way with Closed, the connections and the loop's thread. May be repeated."""
        with self._changing:
            self._closed = True
            loop, thread, client = self._loop, self._thread, self._client
            self._loop = self._thread = self._client = None
        if loop is None or thread is None or client is None:
            return
        atexit.unregister(self.close)
        closing = asyncio.run_coroutine_threadsafe(_end(client), loop)
        with contextlib.suppress(TimeoutError):
            closing.result(timeout=2 * _CLOSING)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=_CLOSING)
        if not thread.is_alive():
            loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._client = _client(self._headers)
            self._loop = uvloop.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=THREAD_NAME, daemon=True)
            self._thread.start()
            # A process that ends without closing us would end under threads that still call Python, and abort.
            atexit.register(self.close)
        return self._loop


def _client(headers: Mapping[str, str]) -> Client:
    builder = ClientBuilder().http1_only().http1_lower_case_headers().no_proxy().follow_redirects(enable=False)
    builder = builder.referer(enable=False).default_cookie_store(enable=False).pool_idle_timeout(_KEEP_ALIVE)
    builder = builder.gzip(enable=False).brotli(enable=False).zstd(enable=False).deflate(enable=False)
    return builder.user_agent("pin").default_headers(headers).build()


async def _end(client: Client) -> None:
    await client.close()
    if in_flight := asyncio.all_tasks() - {asyncio.current_task()}:
        _, hanging = await asyncio.wait(in_flight, timeout=_CLOSING)
        for task in hanging:
            task.cancel()
        await asyncio.gather(*hanging, return_exceptions=True)


def _answer(response: Response, body: bytes) -> Answer:
    status = response.status
    if status != _SUCCESS and _is_huge(response.headers):
        raise BadAnswer
    encoding, media_type = _text(response, "content-encoding"), _text(response, "content-type")
    if encoding and encoding[0].lower() != "identity":
        media_type = []
    return Answer(
        status,
        media_type[0] if media_type else "",
        body,
        tuple(_text(response, "retry-after")) if status != _SUCCESS else (),
    )


def _is_huge(headers: HeaderMap) -> bool:
    """Whether they are more than we take. hyper reads no more than some 400 kB; success is looked at by its body."""
    size = 0
    for name in headers:
        with contextlib.suppress(ValueError):  # a value that is no text: nobody reads it
            size += len(name) + len(headers[name])
    return size > MOST_HEAD_BYTES


def _text(response: Response, name: str) -> list[str]:
    """The header's values; none where one of them is no text of ASCII."""
    try:
        return response.get_header_all(name)
    except ValueError:
        return []


def _explained(error: PyreqwestError) -> OutgoingError:
    match error:
        case ClientClosedError():
            return Closed()
        case RequestTimeoutError():
            return TookTooLong()
        case BodyDecodeError() if _CUT_SHORT in str(error):
            return Unreachable()
        case DecodeError():
            return BadAnswer()
        case ValueError():
            return CannotSend(type(error).__name__)
        case _:
            return Unreachable()
