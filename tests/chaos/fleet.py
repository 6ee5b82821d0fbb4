"""Real processes of the product, in the harness's hands: started, killed, frozen, thawed, started again."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pin.stack.child import Child, ChildSpec, Role
from pin.stack.journal import Journal
from tests.waiting import a_moment

_READY_WITHIN = 60.0  # seconds
_STOP_WITHIN = 8.0


class FleetError(Exception):
    """A process does not come up. The message holds the end of its log."""


def anywhere(_name: str) -> AbstractContextManager[None]:
    """Every process in the place where the harness is."""
    return nullcontext()


class Fleet:
    """Main thread only: a process ends with the thread that started it.

    `inside(name)` is entered around the start of that process, so that it starts somewhere else (a network namespace).
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        journal: Journal,
        cwd: Path,
        inside: Callable[[str], AbstractContextManager[None]] = anywhere,
    ) -> None:
        journal.introduce(*(spec.name for spec in specs))
        self._children = {spec.name: Child(spec, journal, cwd) for spec in specs}
        self._inside = inside
        self._journal = journal
        self._cwd = cwd
        self._frozen: set[str] = set()
        self._away: set[str] = set()

    def start_all(self) -> None:
        """Every process; returns once each is ready. Raises FleetError."""
        for name in self._children:
            self.start(name)
        self.await_ready()

    def start(self, name: str) -> None:
        """Start it, again if it has ended; does not wait."""
        self._away.discard(name)
        if self._children[name].exit_code() is None:
            self._children[name].kill_group()  # one that was told to end, and has not
        with self._inside(name):
            self._children[name].start()

    def await_ready(self) -> None:
        """Wait until every process says that it is ready. Raises FleetError."""
        deadline = time.monotonic() + _READY_WITHIN
        for child in self._children.values():
            while not child.is_ready():
                if child.exit_code() is not None or time.monotonic() > deadline:
                    code = child.exit_code()
                    raise FleetError(f"{child.spec.name} is not ready (exit code {code}):\n{child.last_words()}")
                a_moment(0.05)

    def replace(self, spec: ChildSpec) -> None:
        """Kill the process of that name and start it as `spec` says; does not wait."""
        self.kill(spec.name)
        self._children[spec.name] = Child(spec, self._journal, self._cwd)
        self.start(spec.name)

    def runs(self, name: str) -> bool:
        """Is it up, and not frozen."""
        return name not in self._away | self._frozen and self._children[name].exit_code() is None

    def is_ready(self, name: str) -> bool:
        """Is it up, not frozen, and does it say that it is ready."""
        return self.runs(name) and self._children[name].is_ready()

    def pid(self, name: str) -> int:
        """Its process id, also its group's."""
        return self._children[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL it and all its descendants. It stays away until it is started."""
        self._away.add(name)
        self._frozen.discard(name)
        self._children[name].kill_group()

    def terminate(self, name: str) -> None:
        """SIGTERM it. It stays away until it is started."""
        self._away.add(name)
        self._children[name].terminate()

    def freeze(self, name: str) -> None:
        """SIGSTOP it and its descendants."""
        self._frozen.add(name)
        os.killpg(self.pid(name), signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """SIGCONT them, if it was frozen and not killed meanwhile."""
        if name in self._frozen:
            self._frozen.discard(name)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid(name), signal.SIGCONT)

    def descendant(self, name: str) -> int | None:
        """A process that `name` has forked, the youngest; None when it has none."""
        children = Path(f"/proc/{self.pid(name)}/task/{self.pid(name)}/children")
        with contextlib.suppress(OSError):
            if found := children.read_text().split():
                return int(found[-1])
        return None

    def mend(self) -> list[str]:
        """Start again what has ended by itself; answers which those were."""
        ended = [
            name for name, child in self._children.items() if name not in self._away and child.exit_code() is not None
        ]
        for name in ended:
            self._frozen.discard(name)
            self._children[name].kill_group()
            self.start(name)
        return ended

    def all_up(self) -> None:
        """Thaw what is frozen, start what is away or has ended, wait until all are ready. Raises FleetError."""
        for name in list(self._frozen):
            self.thaw(name)
        for name in list(self._away):
            self.start(name)
        self.mend()
        self.await_ready()

    def stop_all(self) -> None:
        """End every process: by SIGTERM, in the order of the stack's own stop; SIGKILL for what stays."""
        for name in list(self._frozen):
            self.thaw(name)
        running = [child for child in self._children.values() if child.exit_code() is None and child.started_at]
        for role in Role:
            for child in running:
                if child.spec.role is role:
                    child.terminate()
        deadline = time.monotonic() + _STOP_WITHIN
        for child in running:
            child.wait(deadline - time.monotonic())
        for child in self._children.values():
            child.kill_group()
