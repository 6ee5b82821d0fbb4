"""The way to selections, in the harness's hands: a small HTTP proxy that does what networks and bad servers do."""

import asyncio
import collections
import contextlib
import json
import re
import threading
from enum import StrEnum
from types import TracebackType
from typing import Self

from tests.waiting import silence

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_DETACH = re.compile(rb"POST \S+/detach ")
_UPSTREAM_WITHIN = 20.0  # seconds
_LATE = 3.0  # seconds, longer than any call waits
_DRIP = 0.2  # seconds between two bytes


class Mode(StrEnum):
    """What becomes of a request."""

    PASS = "pass"
    REFUSE = "refuse"
    """The connection is reset before anything is read."""
    HANG = "time out"
    """It is read, and nothing follows."""
    DEAF = "time out on detach"
    """Creates and reads pass; a detach is read, and nothing follows."""
    TRICKLE = "trickle"
    """The true answer, a byte at a time."""
    GARBAGE = "answer garbage"
    """An answer that is none of the contract's; selections is not asked."""
    DROP = "apply then drop"
    """Selections does it; its answer is lost."""
    UNAVAILABLE = "unavailable"
    """503 with Retry-After."""
    LATE = "arrive late"
    """Its sender has given up by the time at which it reaches selections."""


_GARBAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9\r\n\r\n<html>\x00\xff\x1b",
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno",
    b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n",
    b"\x00\x01\x02 this is no HTTP\r\n\r\n",
)


class Gateway:
    """`with Gateway(port) as gateway:` passes on what comes to `gateway.url` to that port of this machine.

    `mode` may be set at any moment, from any thread. `hit` counts the requests that a fault met, by mode; `detached`
    has, for each snapshot, every (moment, reason) that selections answered.
    """

    def __init__(self, upstream_port: int) -> None:
        self.mode = Mode.PASS
        self.hit: collections.Counter[Mode] = collections.Counter()
        self.detached: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
        self._upstream_port = upstream_port
        self._port = 0
        self._garbage = 0
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="gateway", daemon=True)

    @property
    def url(self) -> str:
        """Where news and the workers reach selections."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10), "the gateway did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the gateway did not stop"

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        conversations: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._converse(reader, writer))
            conversations.add(task)
            task.add_done_callback(conversations.discard)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopped.wait()
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            while request := await self._request(reader):
                mode = self.mode
                if mode is Mode.DEAF:
                    mode = Mode.HANG if _DETACH.match(request) else Mode.PASS
                if mode is not Mode.PASS:
                    self.hit[mode] += 1
                if not await self._answer(mode, request, writer):
                    break
        writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        if self.mode is Mode.REFUSE:
            self.hit[Mode.REFUSE] += 1
            return b""
        return await _message(reader)

    async def _answer(self, mode: Mode, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Do to the request what the mode says; does the connection go on."""
        match mode:
            case Mode.PASS:
                writer.write(await self._forward(request))
            case Mode.UNAVAILABLE:
                writer.write(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n")
            case Mode.GARBAGE:
                self._garbage += 1
                writer.write(_GARBAGE[self._garbage % len(_GARBAGE)])
            case Mode.HANG | Mode.DEAF:
                await silence(_UPSTREAM_WITHIN)
            case Mode.TRICKLE:
                await _trickle(await self._forward(request), writer)
            case Mode.DROP:
                await self._forward(request)
            case Mode.LATE:
                await silence(_LATE)
                await self._forward(request)
        await writer.drain()
        return mode in {Mode.PASS, Mode.UNAVAILABLE}

    async def _forward(self, request: bytes) -> bytes:
        async with asyncio.timeout(_UPSTREAM_WITHIN):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            try:
                writer.write(request)
                await writer.drain()
                answer = await _message(reader)
            finally:
                writer.close()
        if _DETACH.match(request) and answer.startswith(b"HTTP/1.1 200 "):
            said = json.loads(answer.partition(b"\r\n\r\n")[2])
            self.detached[said["snapshotId"]].add((said["detachedAt"], said["detachReason"]))
        return answer


async def _trickle(answer: bytes, writer: asyncio.StreamWriter) -> None:
    for at in range(len(answer)):
        writer.write(answer[at : at + 1])
        await writer.drain()
        await silence(_DRIP)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """The next message of the connection, whole; empty at the connection's end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = _LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")
