"""The supervisor: starts the stack, mends what dies, stops everything in order, and leaves no process behind."""

import contextlib
import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from db.embedded.server import EmbeddedServer
from db.migrate import upgrade
from pin.stack.child import Child, Role
from pin.stack.journal import Journal
from pin.stack.local import ensure_keys, published_database
from pin.stack.plan import StackOptions, specs

NAME = "stack"
"""The supervisor's own name in the log."""

_START_WITHIN = 60.0  # seconds
_STOP_WITHIN = 9.0  # all processes together; the database gets what is left of ten
_POLL = 0.05
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_SETTLED = 60.0  # a process that has lived so long is not in a crash loop


class StackError(Exception):
    """The stack did not start. The message says which process, and holds the end of its log."""


def never() -> bool:
    """Nobody asks to stop."""
    return False


class Stack:
    """The database and the processes. Use it from the main thread only: children end with the thread that forked."""

    def __init__(self, options: StackOptions, journal: Journal, *, stopping: Callable[[], bool] = never) -> None:
        self.options = options
        self.database_url = options.database_url or ""
        self.server: EmbeddedServer | None = None
        self._journal = journal
        self._stopping = stopping
        self._children: list[Child] = []
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._published = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Database, migrations, keys, then every process; returns once each has said that it is ready, or on a stop.

        Raises StackError, EmbeddedServerError, sqlalchemy.exc.OperationalError when the database cannot be reached.
        """
        options = self.options
        if options.database_url is None:
            self.server = EmbeddedServer(options.state_dir / "postgres")
            self.server.start()
            self.server.create_database("pin")
            self.database_url = self.server.url()
            self._say(f"PostgreSQL runs on port {self.server.port}, its data in {self.server.home}")
        options.state_dir.mkdir(parents=True, exist_ok=True)
        before, after = upgrade(self.database_url)
        self._say(f"the database is at revision {after}" + ("" if before == after else f" (was {before or 'empty'})"))
        keys = ensure_keys(options.state_dir) if options.own_keys else None
        self._published.enter_context(published_database(options.state_dir, self.database_url))
        planned = specs(options, self.database_url, keys)
        self._journal.introduce(NAME, *(spec.name for spec in planned))
        self._children = [Child(spec, self._journal, options.cwd) for spec in planned]
        for child in self._children:
            child.start()
        self._await_ready(self._children)

    def child(self, name: str) -> Child:
        """The process of this name. Raises KeyError for an unknown one."""
        return {child.spec.name: child for child in self._children}[name]

    def stop_child(self, name: str) -> None:
        """Stop one process by SIGTERM and wait till it and its descendants are gone."""
        self._end([self.child(name)], _STOP_WITHIN)

    def start_child(self, name: str) -> None:
        """Start it again and wait till it is ready. Raises StackError when it does not get there."""
        child = self.child(name)
        child.start()
        self._await_ready([child])

    def mend(self) -> None:
        """Start again what has ended without being asked to, after a pause that grows with each time."""
        now = time.monotonic()
        self._mend_server()
        for child in self._children:
            name, code = child.spec.name, child.exit_code()
            if name in self._due:
                if now >= self._due[name]:
                    del self._due[name]
                    child.start()
            elif code is not None:
                child.kill_group()
                if now - child.started_at > _SETTLED:
                    self._failures.pop(name, None)
                failures = self._failures[name] = self._failures.get(name, 0) + 1
                pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
                self._due[name] = now + pause
                self._say(f"{name} ended with code {code} and starts again in {pause:.0f} s")

    def stop(self) -> None:
        """Schedulers, workers, news, selections, then the database; each is killed when its time is up. Idempotent."""
        deadline = time.monotonic() + _STOP_WITHIN
        for role in Role:
            running = [child for child in self._children if child.spec.role is role]
            left_for_others = 0.5 * (len(Role) - role)
            self._end(running, max(0.5, deadline - time.monotonic() - left_for_others))
        self._children = []
        self._published.close()
        if self.server is not None:
            self.server.stop()
            self.server = None
            self._say("everything has stopped")

    def _end(self, children: list[Child], within: float) -> None:
        deadline = time.monotonic() + within
        for child in children:
            child.terminate()
        for child in children:
            if not child.wait(deadline - time.monotonic()):
                self._say(f"{child.spec.name} does not stop and is killed")
            child.kill_group()  # also what it may have left behind

    def _await_ready(self, children: list[Child]) -> None:
        deadline = time.monotonic() + _START_WITHIN
        waiting = list(children)
        while waiting and not self._stopping():
            waiting = [child for child in waiting if not child.is_ready()]
            for child in children:
                if (code := child.exit_code()) is not None:
                    raise StackError(f"{child.spec.name} ended at its start, code {code}:\n{child.last_words()}")
            if waiting and time.monotonic() > deadline:
                name = waiting[0].spec.name
                raise StackError(f"{name} is not ready within {_START_WITHIN:.0f} s:\n{waiting[0].last_words()}")
            if waiting:
                time.sleep(_POLL)

    def _mend_server(self) -> None:
        if self.server is None or not _has_ended(self.server.pid):
            return
        self._say("PostgreSQL has ended and starts again")
        self.server.stop()
        self.server.start()
        if self.server.url() != self.database_url:
            raise StackError("PostgreSQL's port was taken by another program: start the stack again")

    def _say(self, line: str) -> None:
        self._journal.write(NAME, line)


def _has_ended(pid: int) -> bool:
    """Has this child ended; it is left for its owner to reap."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
