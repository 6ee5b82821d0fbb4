"""Selections at the network's edge: a hand-written HTTP/1.1 server whose every answer, broken ones too, is scripted.

The only fake of the suite; the sender is also tested against the real receiving app. A script is the list of what the
server does once it has read a request: bytes it sends, pauses, a gate it waits at, the end of the connection.
"""

import asyncio
import contextlib
import http
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from tests.waiting import eventually

JSON = "application/json"
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Call:
    """One request as it came; header names in lower case. `connection` numbers the TCP connections from 1."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The header's first value."""
        return next((value for key, value in self.headers if key == name.lower()), None)

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Pause:
    """The server is silent for so many seconds."""

    seconds: float


class Gate:
    """The server is silent until a test opens the gate, from any thread."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def open(self) -> None:
        """Let through whoever waits, and whoever comes later."""
        if not self._opened.done():
            self._opened.set_result(None)

    async def passed(self) -> None:
        """Return once the gate is open."""
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Close:
    """The server ends the connection."""


class Reset:
    """The server resets the connection: what it has not sent is lost, and the other side learns of it at once."""


@dataclass(frozen=True)
class Endless:
    """The server sends this again and again, as fast as it is read, until the connection or the test ends."""

    piece: bytes


Script: TypeAlias = Sequence[bytes | Pause | Gate | Close | Reset | Endless]


def reply(
    status: int = 200,
    body: bytes = b"",
    *,
    content_type: str | None = JSON,
    headers: Iterable[tuple[str, str]] = (),
    keep_alive: bool = True,
) -> Script:
    """A complete answer. `keep_alive=False` ends the connection after it without having said so."""
    phrase = next((known.phrase for known in http.HTTPStatus if known == status), "Unnamed")
    named = [*([("Content-Type", content_type)] if content_type else []), *headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in named)
    whole = f"HTTP/1.1 {status} {phrase}\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return [whole] if keep_alive else [whole, Close()]


def detached(call: Call) -> Script:
    """The contract's success for the snapshot that the call's path names (D5)."""
    answer = {
        "snapshotId": call.path.split("/")[-2],
        "status": "Detached",
        "detachedAt": "2026-01-01T00:00:00Z",
        "detachReason": call.json()["reason"],
    }
    return reply(200, json.dumps(answer).encode())


def problem(status: int, code: str, headers: Iterable[tuple[str, str]] = ()) -> Script:
    """A refusal of the contract's shape."""
    body = {"type": "about:blank", "title": code, "status": status, "code": code}
    return reply(status, json.dumps(body).encode(), content_type=PROBLEM, headers=headers)


def trickling(pieces: Iterable[bytes], pause: float) -> Script:
    """Each piece after `pause` seconds of silence, then the end of the connection."""
    return [step for piece in pieces for step in (Pause(pause), piece)] + [Close()]


class FakeSelections:
    """`with FakeSelections() as fake:` serves at `fake.url` until the block ends.

    `answer` may be replaced at any moment; it is asked once a request, on the server's only thread, so it must not
    block: a script that waits holds a Gate. `calls` has every request in the order of arrival.
    """

    def __init__(
        self,
        answer: Callable[[Call], Script] = detached,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.connections = 0
        self.open_connections = 0
        self._port, self._host, self._tls = port, host, tls
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fake-selections", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10), "the fake did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the fake did not stop"

    def arrived(self, count: int, *, within: float = 10.0) -> list[Call]:
        """The calls, once there are `count` of them."""
        eventually(lambda: len(self.calls) >= count, within=within)
        return list(self.calls)

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        serving: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.create_task(self._converse(reader, writer, self.connections))
            serving.add(task)
            task.add_done_callback(serving.discard)

        server = await asyncio.start_server(connected, self._host, self._port, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopped.wait()
        server.close()
        for _ in range(3):  # a connection that has just been accepted becomes one that is served, and so is ended too
            await asyncio.sleep(0)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        self.open_connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while call := await _read(reader, connection):
                    self.in_flight += 1
                    self.most_in_flight = max(self.most_in_flight, self.in_flight)
                    try:
                        self.calls.append(call)
                        if not await self._play(self.answer(call), writer):
                            break
                    finally:
                        self.in_flight -= 1
        finally:
            self.open_connections -= 1
            if self._stopped.is_set():
                writer.transport.abort()  # nobody waits for what is still to be sent
            else:
                writer.close()

    async def _play(self, script: Script, writer: asyncio.StreamWriter) -> bool:
        """Does the connection stay open?"""
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, Endless):
                while not self._stopped.is_set() and not writer.is_closing():
                    writer.write(step.piece)
                    await writer.drain()
                    await asyncio.sleep(0)  # drain yields only above its mark: the others' connections have their turn
            elif isinstance(step, Gate):
                await step.passed()
            elif isinstance(step, Pause):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), step.seconds)
            else:
                if isinstance(step, Reset):
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                return False
        return True


async def _read(reader: asyncio.StreamReader, connection: int) -> Call | None:
    """The next request of the connection, None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = request_line.split(" ")
    headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = int(next((value for name, value in headers if name == "content-length"), "0"))
    chunked = any(name == "transfer-encoding" for name, _ in headers)
    body = await _chunks(reader) if chunked else await reader.readexactly(length)
    return Call(method, path, headers, body, connection)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
