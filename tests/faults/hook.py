"""Borders that a process crosses, hooked in from outside: the product knows nothing of it.

A border is a moment at which the world outside has just learned something or is about to: a statement of SQL before it
is sent and after it is answered, a commit before and after, an HTTP request before it is sent, once it is on the wire,
and when its reply has come. `install` wraps classes in this process: the libraries', and those of the two ways out.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import psycopg

from pin.outgoing.client import HttpClient
from pin.outgoing.network import BoundedStream
from pin.outgoing.wire import Wire

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
    """Wrap psycopg and the two HTTP clients, at their classes, for the rest of this process's life."""
    _around(psycopg.Cursor, "execute", "sql before", "sql after", borders, _statement)
    _around(psycopg.Cursor, "executemany", "sql before", "sql after", borders, _statement)
    _around(psycopg.Connection, "commit", "commit before", "commit after", borders, _nothing)
    _around_hot_requests(borders)
    _around_other_requests(borders)


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


def _around_hot_requests(borders: Borders) -> None:
    post = Wire.post

    @wraps(post)
    async def exchange(self: Wire, path: str, *args: Any, **kwargs: Any) -> Any:
        what = f"POST {path.rpartition('/')[2]}"
        await borders.cross_async("http before", what)
        asking = asyncio.ensure_future(post(self, path, *args, **kwargs))
        await asyncio.sleep(0)  # it is reqwest's now, which writes on a thread of its own
        await borders.cross_async(SENT)
        answer = await asking
        await borders.cross_async("http reply", f"{what} {answer.status}")
        return answer

    Wire.post = exchange  # type: ignore[method-assign]


def _around_other_requests(borders: Borders) -> None:
    ask, write = HttpClient.ask, BoundedStream.write

    @wraps(ask)
    def exchange(self: HttpClient, method: str, url: str, **kwargs: Any) -> Any:
        what = f"{method} {url.partition('?')[0].rpartition('/')[2]}"
        borders.cross("http before", what)
        answer = ask(self, method, url, **kwargs)
        borders.cross("http reply", f"{what} {answer.status}")
        return answer

    @wraps(write)
    def sent(self: BoundedStream, buffer: bytes, timeout: float | None = None) -> None:
        write(self, buffer, timeout)
        if not buffer:  # how httpcore ends a request
            borders.cross(SENT)

    HttpClient.ask = exchange  # type: ignore[method-assign]
    BoundedStream.write = sent  # type: ignore[method-assign]


def _statement(_: object, query: object, *__: object) -> str | None:
    text = query.decode() if isinstance(query, bytes) else str(query)
    if text == _PING or text.startswith(_GREETING):
        return None
    return " ".join(text.split())[:70]


def _nothing(*_: object) -> str:
    return ""
