"""Whether loops still turn: what `/health/live` says of a scheduler and of a worker."""

import contextlib
import threading
import time
from datetime import timedelta
from pathlib import Path

_WRITE_EVERY = 1.0  # seconds between two writes of one beat


class Pulse:
    """The beats of named loops. With a `folder`, also those of the other processes that share it.

    A loop is known from its first beat on, or from `expect`. Times are the monotonic clock's, which all processes of a
    machine share, so that a stepped clock raises nothing.
    """

    def __init__(self, patience: timedelta, folder: Path | None = None, process: int = 0) -> None:
        self._patience = patience.total_seconds()
        self._folder = folder
        self._process = process
        self._lock = threading.Lock()
        self._beats: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def expect(self, loop: str) -> None:
        """From now on this loop is to beat."""
        self.beat(loop)

    def watch(self, thread: threading.Thread) -> None:
        """From now on this thread is to be alive."""
        with self._lock:
            self._threads.append(thread)

    def beat(self, loop: str) -> None:
        """The loop came round."""
        now = time.monotonic()
        with self._lock:
            self._beats[loop] = now
            due = self._folder is not None and now - self._written.get(loop, float("-inf")) >= _WRITE_EVERY
            if due:
                self._written[loop] = now
        if due and self._folder is not None:
            with contextlib.suppress(OSError):  # a full disk is no reason to stop delivering
                (self._folder / f"pulse-{self._process}-{loop}").write_text(f"{now}\n", encoding="ascii")

    def fault(self) -> str | None:
        """The loop that has not come round for longer than the patience; None when all turn."""
        now = time.monotonic()
        with self._lock:
            beats, dead = dict(self._beats), [thread.name for thread in self._threads if not thread.is_alive()]
        if dead:
            return f"the thread {dead[0]} has ended"
        beats |= self._others()
        for loop, last in sorted(beats.items()):
            if now - last > self._patience:
                return f"{loop} has not come round for {now - last:.0f} s"
        return None

    def _others(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for path in self._folder.glob("pulse-*") if self._folder is not None else ():
            _, process, loop = path.name.split("-", 2)
            if process != str(self._process):
                with contextlib.suppress(OSError, ValueError):  # just being written
                    found[f"{loop} of process {process}"] = float(path.read_text(encoding="ascii"))
        return found
