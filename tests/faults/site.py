"""The rest of the world of a walking process: databases, selections over HTTP, and the process that forks it."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self, cast

import psycopg
from psycopg import sql
from sqlalchemy import NullPool, create_engine

from db.connect import make_engine
from db.embedded.server import EmbeddedServer
from db.migrate import upgrade
from pin.access.signing import new_key_pair
from pin.config.sections import LogOptions
from pin.rules.contract import SNAPSHOTS_PATH
from tests.faults.orders import Order
from tests.faults.paths import settings_of
from tests.faults.scenes import SCENES, Facts, keep, restore, take_notes
from tests.serving import Keys, serving
from tests.waiting import eventually
from web.app import assemble
from web.deps import build_deps

_PATIENCE = 30.0
_SITES = count(1)


class Edge:
    """Selections as news meets it: the real app, and before it what a network does to requests."""

    def __init__(self) -> None:
        self.app: Any = None
        self._lock = threading.Lock()
        self.reset()

    def reset(self, failing: Sequence[str] = (), *, late_creates: bool = False) -> None:
        """From now on: 503 for what names one of `failing`; creates wait for `land` when they are late."""
        self.failing = set(failing)
        self.seen = 0
        self.in_flight = 0
        self.waiting = 0
        self._land = threading.Event()
        if not late_creates:
            self._land.set()

    def land(self) -> None:
        """Let the creates through that have waited."""
        self._land.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with self._lock:
            self.in_flight += 1
            self.seen += 1
        try:
            if scope["path"] == SNAPSHOTS_PATH and not self._land.is_set():
                await self._held_back()
            if any(one in scope["path"] for one in self.failing):
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            else:
                await self.app(scope, receive, send)
        finally:
            with self._lock:
                self.in_flight -= 1

    async def _held_back(self) -> None:
        with self._lock:
            self.waiting += 1
        try:
            await asyncio.to_thread(self._land.wait, _PATIENCE)
        finally:
            with self._lock:
                self.waiting -= 1


class Child:
    """The harness's end of a walking process."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._heard = bytearray()
        self.pid = 0

    def message(self, within: float) -> dict[str, Any] | None:
        """The next thing it says, None when it says nothing in time; `{"gone": True}` once it has ended."""
        deadline = monotonic() + within
        while b"\n" not in self._heard:
            self._end.settimeout(max(0.001, deadline - monotonic()))
            try:
                received = self._end.recv(65536)
            except TimeoutError:
                return None
            except ConnectionResetError:
                received = b""
            if not received:
                return {"gone": True}
            self._heard += received
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard[:] = rest
        said: dict[str, Any] = json.loads(line)
        return said

    def say(self, word: str) -> None:
        """`go` or `finish`."""
        self._end.sendall(word.encode() + b"\n")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pid, 9)
        assert eventually(lambda: self.message(0.01) == {"gone": True}, within=_PATIENCE, every=0.001)

    def close(self) -> None:
        """Its last breath, if it still lives."""
        self._end.close()


@dataclass
class Site:
    """Everything a trial needs; a context manager. `server` is a running PostgreSQL of the harness's own."""

    server: EmbeddedServer
    folder: Path
    edge: Edge = field(default_factory=Edge)
    facts: dict[str, Facts] = field(default_factory=dict)
    selections_url: str = ""
    _database: str = ""
    _scenes: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def _open(self, stack: ExitStack) -> None:
        self.keys = Keys(*new_key_pair(self.folder, "test"))
        self._admin = stack.enter_context(
            psycopg.connect(self.server.url("postgres"), autocommit=True, application_name="pin-faults-admin")
        )
        self._zygote = stack.enter_context(_zygote())
        self._base = f"faults_{os.getpid()}_{next(_SITES)}"
        self.server.create_database(self._base)
        upgrade(self.server.url(self._base))
        with psycopg.connect(self.server.url(self._base), autocommit=True) as connection:
            take_notes(connection)
        self.selections_url = stack.enter_context(self._serving_selections())
        # What the product says of the faults is for the walking process's own file.
        root = logging.getLogger()
        stack.callback(root.setLevel, root.level)
        root.setLevel(logging.CRITICAL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def lay(self, path: str) -> None:
        """Make the database of `path`, with the rows that each of its points starts from."""
        if path in self._scenes:
            return
        database = self._clone()
        engine = make_engine(self.server.url(database), application_name="pin-faults-scene")
        self.facts[path] = SCENES[path](engine, settings_of(self.keys, self.server.url(database), "http://127.0.0.1:9"))
        engine.dispose()
        with psycopg.connect(self.server.url(database), autocommit=True) as connection:
            keep(connection)
        self._scenes[path] = database

    def start(self, path: str, stop_at: int, *, named: str = "", breakage: str | None = None) -> tuple[Child, str]:
        """A process that walks `path` on the path's database, put back to its scene; answers that database's URL."""
        self._database = self.server.url(self._scenes[path])
        with psycopg.connect(self._database, autocommit=True, application_name="pin-faults-look") as connection:
            restore(connection)
        facts = self.facts[path]
        self.edge.reset(facts.get("failing", ()), late_creates=path.endswith("late create"))
        order = Order(
            path=path,
            database=self._database,
            selections_url=self.selections_url,
            private_key=str(self.keys.private),
            public_key=str(self.keys.public),
            stop_at=stop_at,
            log=str(self.folder / "walk.log"),
            named=named,
            breakage=breakage,
            facts=facts,
        )
        ours, its = socket.socketpair()
        with its:
            socket.send_fds(self._zygote, [order.encode()], [its.fileno()])
        child = Child(ours)
        said = child.message(_PATIENCE)
        assert said is not None
        child.pid = said["pid"]
        return child, self._database

    def _clone(self) -> str:
        name = f"{self._base}_{len(self._scenes)}"
        self._admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(self._base))
        )
        return name

    def _serving_selections(self) -> AbstractContextManager[str]:
        """One server for all points, on whichever database the present one has."""
        settings = settings_of(
            self.keys,
            self.server.url(self._base),
            "http://127.0.0.1:9",
            contexts=("selections",),
            log=LogOptions(level="error"),
        )
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: psycopg.connect(self._database, application_name="pin-faults-selections"),
            poolclass=NullPool,
        )
        deps = build_deps(settings)
        deps.close()
        self.edge.app = assemble(replace(deps, engine=engine, write_engine=engine))
        return serving(cast("Any", self.edge))


@contextmanager
def _zygote() -> Iterator[socket.socket]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.zygote", str(its.fileno())],
            pass_fds=[its.fileno()],
            cwd=Path(__file__).parents[2],
        )
    try:
        yield ours
    finally:
        ours.close()
        process.wait(20)
