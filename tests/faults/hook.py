"""Borders that a process crosses, hooked in from outside: the product knows nothing of it.

A border is a moment at which the world outside has just learned something or is about to: a statement of SQL before it
is sent and after it is answered, a commit before and after, an HTTP request before it is sent, once it is on the wire,
and when its reply has come. `install` wraps the libraries' own classes in this process.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import psycopg
from aiohttp.http_writer import StreamWriter
from httpx_aiohttp import AiohttpTransport

SENT = "http sent"

# What SQLAlchemy asks a new connection, and its empty ping of one that is used again: nobody learns anything of them.
_GREETING = ("select pg_catalog.version()", "show standard_conforming_strings", "select current_schema()", "SELECT typ")
_PING = ";"


class Borders:
    """Counts the crossings of a process, and holds it at one: whoever comes to that border, or later to any, is held.

    The one is number `stop_at` of the borders whose names start with `named` (of all, when empty). `report(number,
    border, requests)` is told of it, with the number of HTTP requests sent so far; `released()` blocks until the
    process may go on.
    """

    def __init__(
        self, stop_at: int, named: str, report: Callable[[int, str, int], None], released: Callable[[], object]
    ) -> None:
        self._stop_at = stop_at
        self._named = named
        self._report = report
        self._released = released
        self._lock = threading.Lock()
        self._met = 0
        self._holding = False
        self._quiet = threading.local()
        self._sent = 0
        self.crossed = 0
        self.kinds: set[str] = set()

    def cross(self, kind: str, what: str = "") -> None:
        """A border, met by a thread that may block."""
        if self._meets(kind, what):
            self._hold()

    async def cross_async(self, kind: str, what: str = "") -> None:
        """A border, met on an event loop: it goes on turning while this crossing is held, so that bytes get out."""
        if self._meets(kind, what):
            await asyncio.to_thread(self._hold)

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """What this thread does meanwhile is the harness's own."""
        self._quiet.on = True
        try:
            yield
        finally:
            self._quiet.on = False

    def _meets(self, kind: str, what: str) -> bool:
        if getattr(self._quiet, "on", False):
            return False
        border = f"{kind} {what}".strip()
        with self._lock:
            self.crossed += 1
            self.kinds.add(kind)
            self._sent += kind == SENT
            self._met += border.startswith(self._named)
            if self._met == self._stop_at and border.startswith(self._named):
                self._holding = True
                self._report(self.crossed, border, self._sent)
            return self._holding

    def _hold(self) -> None:
        self._released()
        self._holding = False


def install(borders: Borders) -> None:
    """Wrap psycopg and the transport of the HTTP client, at their classes, for the rest of this process's life."""
    _around(psycopg.Cursor, "execute", "sql before", "sql after", borders, _statement)
    _around(psycopg.Cursor, "executemany", "sql before", "sql after", borders, _statement)
    _around(psycopg.Connection, "commit", "commit before", "commit after", borders, _nothing)
    _around_requests(borders)


def _around(
    owner: type, name: str, before: str, after: str, borders: Borders, describe: Callable[..., str | None]
) -> None:
    original = getattr(owner, name)

    @wraps(original)
    def crossing(self: Any, *args: Any, **kwargs: Any) -> Any:
        what = describe(self, *args)
        if what is None:
            return original(self, *args, **kwargs)
        borders.cross(before, what)
        answer = original(self, *args, **kwargs)
        borders.cross(after, what)
        return answer

    setattr(owner, name, crossing)


def _around_requests(borders: Borders) -> None:
    handle, write_eof = AiohttpTransport.handle_async_request, StreamWriter.write_eof

    @wraps(handle)
    async def exchange(self: Any, request: Any) -> Any:
        what = f"{request.method} {request.url.path.rpartition('/')[2]}"
        await borders.cross_async("http before", what)
        response = await handle(self, request)
        await borders.cross_async("http reply", f"{what} {response.status_code}")
        return response

    @wraps(write_eof)
    async def sent(self: Any, chunk: bytes = b"") -> None:
        await write_eof(self, chunk)
        await borders.cross_async(SENT)

    for owner, wrapped in ((AiohttpTransport, exchange), (StreamWriter, sent)):
        setattr(owner, wrapped.__name__, wrapped)


def _statement(_: object, query: object, *__: object) -> str | None:
    text = query.decode() if isinstance(query, bytes) else str(query)
    if text == _PING or text.startswith(_GREETING):
        return None
    return " ".join(text.split())[:70]


def _nothing(*_: object) -> str:
    return ""
