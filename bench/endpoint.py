"""The loopback endpoint that every system calls: answers detach to the contract's letter, after a set delay.

Its own process (`python -m bench.endpoint` prints `listening PORT`), so that it takes no time of the system measured
but its share of the processor: some 20 to 40 µs a call. Controlled over the same port under `/bench/`.
"""

import asyncio
import json
import re
import resource
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs, urlsplit

import uvloop

from pin.rules.contract import DETACH_PATH

_BEFORE_ID, _AFTER_ID = (part.encode() for part in DETACH_PATH.split("{id}"))
_ID_LENGTH = 36
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BODY = (
    b'{"snapshotId":"%s","status":"Detached","detachedAt":"2026-01-01T00:00:00+00:00","detachReason":"BlockReplaced"}'
)
_HEAD = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_DETACHED = _HEAD % (b"200 OK", len(_BODY % bytes(_ID_LENGTH))) + _BODY


@dataclass
class Tally:
    """What the endpoint saw since the last reset. Moments are of the monotonic clock, which all processes share."""

    delay: float = 0.0
    calls: int = 0
    answered: int = 0
    first_at: float | None = None
    last_at: float | None = None
    ids: set[bytes] = field(default_factory=set)
    waiting: list[tuple[int, asyncio.Transport]] = field(default_factory=list)

    def reset(self, delay: float) -> None:
        """Forget what was seen; answer after `delay` seconds from now on."""
        self.delay, self.calls, self.answered, self.first_at, self.last_at = delay, 0, 0, None, None
        self.ids.clear()

    def facts(self) -> dict[str, float | int | None]:
        """As `/bench/tally` answers."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "calls": self.calls,
            "answered": self.answered,
            "distinct": len(self.ids),
            "first_at": self.first_at,
            "last_at": self.last_at,
            "cpu": used.ru_utime + used.ru_stime,
        }


class Endpoint(asyncio.Protocol):
    """One keep-alive connection; requests may come in any pieces."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._unread = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its ancestry

    def data_received(self, data: bytes) -> None:
        unread = self._unread + data if self._unread else data
        while (end := unread.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(unread, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(unread) < whole:
                break
            self._answer(unread[: unread.index(b"\r\n")])
            unread = unread[whole:]
        self._unread = unread

    def _answer(self, request_line: bytes) -> None:
        assert self._transport is not None  # noqa: S101 - for the type checker
        method, target, _ = request_line.split(b" ", 2)
        snapshot_id = target[len(_BEFORE_ID) : -len(_AFTER_ID)]
        if method == b"POST" and target == _BEFORE_ID + snapshot_id + _AFTER_ID and len(snapshot_id) == _ID_LENGTH:
            self._detach(snapshot_id, self._transport)
        else:
            self._control(target.decode(), self._transport)

    def _detach(self, snapshot_id: bytes, transport: asyncio.Transport) -> None:
        tally = self._tally
        tally.calls += 1
        tally.ids.add(snapshot_id)
        if tally.first_at is None:
            tally.first_at = time.monotonic()
        if tally.delay:
            asyncio.get_running_loop().call_later(tally.delay, self._send, transport, _DETACHED % snapshot_id)
        else:
            self._send(transport, _DETACHED % snapshot_id)

    def _send(self, transport: asyncio.Transport, answer: bytes) -> None:
        tally = self._tally
        if not transport.is_closing():
            transport.write(answer)
        tally.answered += 1
        if tally.waiting and tally.answered >= tally.waiting[0][0]:
            tally.last_at = time.monotonic()
            self._tell()

    def _control(self, target: str, transport: asyncio.Transport) -> None:
        """`/bench/reset?delay_ms=20`, `/bench/tally`, and `/bench/wait?answered=2000`, which is answered then."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match parts.path:
            case "/bench/reset":
                self._tally.reset(float(query["delay_ms"]) / 1000)
                _write(transport, self._tally)
            case "/bench/tally":
                _write(transport, self._tally)
            case "/bench/wait":
                self._tally.waiting.append((int(query["answered"]), transport))
                self._tell()
            case _:
                transport.write(_HEAD % (b"404 Not Found", 0))

    def _tell(self) -> None:
        tally = self._tally
        for waiting in [each for each in tally.waiting if each[0] <= tally.answered]:
            tally.waiting.remove(waiting)
            _write(waiting[1], tally)


def _write(transport: asyncio.Transport, tally: Tally) -> None:
    body = json.dumps(tally.facts()).encode()
    transport.write(_HEAD % (b"200 OK", len(body)) + body)


async def serve() -> None:
    """Serve on a free port of loopback until the process is ended."""
    tally = Tally()
    server = await asyncio.get_running_loop().create_server(lambda: Endpoint(tally), "127.0.0.1", 0)
    print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
