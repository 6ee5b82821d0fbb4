"""The network below httpx, bounded: every wait ends by the exchange's deadline, every byte that comes is counted.

An exchange runs on one thread from its first byte to its last, so its bounds are that thread's (A4, A60).
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import httpcore
from httpcore import SOCKET_OPTION

from pin.outgoing.errors import BadAnswer

MOST_HEAD_BYTES = 64 * 1024
"""Everything before the body counts: status line, headers, and each informational answer before them."""


class Bounds:
    """What one exchange may use: time until the monotonic `deadline`, and `most` bytes of what comes."""

    def __init__(self, deadline: float, most: int) -> None:
        self.deadline = deadline
        self.ended = False
        """Whether the other side ended the connection."""
        self._left = most

    def time_left(self, timeout: float | None) -> float:
        """Seconds that one wait may take. Raises httpcore.TimeoutException when none are left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore.TimeoutException("the deadline has passed")
        return left if timeout is None else min(left, timeout)

    def count(self, data: bytes) -> bytes:
        """The data, counted. Raises BadAnswer when it is more than may come."""
        self.ended = not data
        self._left -= len(data)
        if self._left < 0:
            raise BadAnswer
        return data


_current = threading.local()


@contextmanager
def bounded(bounds: Bounds) -> Iterator[None]:
    """Hold this thread's exchange to its bounds."""
    _current.bounds = bounds
    try:
        yield
    finally:
        del _current.bounds


def _bounds() -> Bounds:
    bounds: Bounds = _current.bounds
    return bounds


class BoundedStream(httpcore.NetworkStream):
    """A connection whose reads and writes keep the bounds of the thread's exchange."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """At most `max_bytes` of what comes."""
        bounds = _bounds()
        return bounds.count(self._inner.read(max_bytes, bounds.time_left(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of `buffer`; an empty one ends a request."""
        self._inner.write(buffer, _bounds().time_left(timeout))

    def close(self) -> None:
        """End the connection."""
        self._inner.close()

    def cut(self) -> None:
        """Wake the thread that reads, which then closes: closed under it, the socket might be another's by then."""
        with contextlib.suppress(OSError):
            self._inner.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """The connection under TLS."""
        left = _bounds().time_left(timeout)
        self._inner = self._inner.start_tls(ssl_context, server_hostname, left)
        return self

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks of its own streams."""
        return self._inner.get_extra_info(info)


class BoundedNetwork(httpcore.NetworkBackend):
    """httpcore's own network, each stream held to its thread's bounds.

    Resolving a name is the one wait that the system does not let end early: whoever needs an answer by a deadline waits
    on another thread (`pin.outgoing.client`).
    """

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()
        self._open: WeakSet[BoundedStream] = WeakSet()
        self._changing = threading.Lock()
        self._cut = False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """A connection by the deadline, unless the name's resolver hangs."""
        left = _bounds().time_left(timeout)
        stream = BoundedStream(self._inner.connect_tcp(host, port, left, local_address, socket_options))
        with self._changing:
            self._open.add(stream)
            cut = self._cut
        if cut:
            stream.cut()
        return stream

    def cut(self) -> None:
        """Cut every connection, and each that is still to come: whoever reads one meets its end."""
        with self._changing:
            self._cut = True
            streams = list(self._open)
        for stream in streams:
            stream.cut()
