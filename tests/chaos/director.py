"""Carries out the schedule: does each fault when it is due, undoes it when its time is over, mends what has ended."""

import collections
import contextlib
import heapq
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import psycopg

from db.embedded.server import EmbeddedServer
from tests.chaos.fleet import Fleet
from tests.chaos.gateway import Gateway, Mode
from tests.chaos.schedule import Fault, Kind
from tests.waiting import a_moment

_LOOK_EVERY = 0.05
_SESSION_WITHIN = 1.5


class Director:
    """Main thread only. `say` hears of each fault as it is done."""

    def __init__(self, fleet: Fleet, server: EmbeddedServer, gateway: Gateway, say: Callable[[str], None]) -> None:
        self.done: collections.Counter[str] = collections.Counter()
        self.mended: collections.Counter[str] = collections.Counter()
        self.away: list[tuple[str, datetime, datetime]] = []
        """When a worker was killed or frozen, and when it was back."""
        self._fleet = fleet
        self._server = server
        self._gateway = gateway
        self._say = say
        self._mode_of: Fault | None = None
        self._since: dict[str, datetime] = {}
        self._ending: set[str] = set()  # a child of theirs was killed: they end within seconds, and are mended then
        self.frozen_until = 0.0
        """Monotonic: until then a process may sit in a transaction for no fault of its own."""

    def play(self, faults: Iterable[Fault], seconds: float) -> None:
        """All of them, and whatever is left of the time."""
        began = time.monotonic()
        numbers = itertools.count()
        due: list[tuple[float, int, Callable[[], None]]] = []
        coming = iter(faults)
        following = next(coming, None)
        while (now := time.monotonic() - began) < seconds or due:
            if following is not None and following.at <= now:
                if (undo := self._do(following)) is not None:
                    heapq.heappush(due, (now + following.lasts, next(numbers), undo))
                following = next(coming, None)
            elif due and due[0][0] <= now:
                heapq.heappop(due)[2]()
            else:
                self._mend()
                a_moment(_LOOK_EVERY)

    def all_well(self) -> None:
        """End every fault and wait until every process runs."""
        self._gateway.mode = Mode.PASS
        self._fleet.all_up()
        for name in list(self._since):
            self._back(name)

    def _do(self, fault: Fault) -> Callable[[], None] | None:
        """Do it, if there is something to do it to; answers how to undo it."""
        match fault.kind:
            case Kind.SELECTIONS:
                return self._selections(fault)
            case Kind.RESTART | Kind.CRASH:
                self._told(fault)
                return self._database(fault)
            case Kind.END_SESSIONS:
                self._end_sessions(fault)
                return None
        if not self._fleet.runs(fault.target):
            return None
        self._told(fault)
        return self._process(fault, fault.target)

    def _process(self, fault: Fault, name: str) -> Callable[[], None] | None:
        if fault.kind is Kind.KILL_CHILD:
            if (child := self._fleet.descendant(name)) is not None:
                self._gone(name)
                self._ending.add(name)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            return None
        self._gone(name)
        if fault.kind is Kind.KILL:
            self._fleet.kill(name)
            return lambda: self._fleet.start(name)
        if fault.kind is Kind.TERMINATE:
            self._fleet.terminate(name)
            return lambda: self._fleet.start(name)
        self._fleet.freeze(name)
        self.frozen_until = max(self.frozen_until, time.monotonic() + fault.lasts + 1.0)

        def thaw() -> None:
            self._fleet.thaw(name)
            self.frozen_until = max(self.frozen_until, time.monotonic() + 1.0)
            self._back(name)

        return thaw

    def _selections(self, fault: Fault) -> Callable[[], None]:
        self._told(fault)
        self._gateway.mode, self._mode_of = Mode(fault.target), fault

        def undo() -> None:
            if self._mode_of is fault:
                self._gateway.mode = Mode.PASS

        return undo

    def _database(self, fault: Fault) -> Callable[[], None]:
        if fault.kind is Kind.CRASH:
            os.kill(self._server.pid, signal.SIGQUIT)
        self._server.stop()
        return self._server.start

    def _end_sessions(self, fault: Fault) -> None:
        """The sessions that this application has open; one that has none is waited for, a lock's lives for a run."""
        deadline = time.monotonic() + _SESSION_WITHIN
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(self._server.url(), autocommit=True, application_name="pin-faults-director") as connection,
        ):
            while time.monotonic() < deadline:
                ended = connection.execute(
                    """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                       WHERE application_name = %s AND datname = current_database()""",
                    [fault.target],
                ).fetchone()
                if ended and ended[0]:
                    self._told(fault)
                    return
                a_moment(0.01)

    def _mend(self) -> None:
        for name in self._fleet.mend():
            self._say(f"        {name} had ended and is started again")
            self.mended[name.rstrip("-12")] += 1
            self._gone(name)
            self._ending.discard(name)
        for name in self._since.keys() - self._ending:
            if self._fleet.is_ready(name):
                self._back(name)

    def _told(self, fault: Fault) -> None:
        self.done[fault.name] += 1
        for_so_long = f" for {fault.lasts:.1f} s" if fault.lasts else ""
        self._say(f"{fault.at:7.1f} {fault}{for_so_long}")

    def _gone(self, name: str) -> None:
        self._since.setdefault(name, datetime.now(tz=UTC))

    def _back(self, name: str) -> None:
        began = self._since.pop(name, None)
        if began is not None and name.startswith("worker"):
            self.away.append((name, began, datetime.now(tz=UTC)))
