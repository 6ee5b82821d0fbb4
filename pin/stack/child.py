"""One process of the stack: started in a session of its own, tied to the supervisor's life, read line by line."""

import collections
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from urllib.parse import urlsplit

from pin import lifeline
from pin.stack.journal import Journal

_TAIL = 15  # lines kept to explain a failed start
_PROBE_TIMEOUT = 2.0  # seconds
_OK = 200


class Role(IntEnum):
    """What a process is; a stop goes through the roles in this order."""

    SCHEDULER = 1
    WORKER = 2
    NEWS = 3
    SELECTIONS = 4


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start a process, and how it says that it is ready: by HTTP, or by lines in its log."""

    name: str
    role: Role
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    ready_url: str | None = None
    ready_line: str | None = None
    ready_lines: int = 1


class Child:
    """A process and its descendants. Start it from the main thread: it ends with the thread that started it."""

    def __init__(self, spec: ChildSpec, journal: Journal, cwd: Path) -> None:
        self.spec = spec
        self._journal = journal
        self._cwd = cwd
        self._process: subprocess.Popen[str] | None = None
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL)
        self._ready_lines = 0
        self._reader: threading.Thread | None = None
        self.started_at = 0.0

    @property
    def pid(self) -> int:
        """The process id, also of its session and group. Raises RuntimeError before the start."""
        if self._process is None:
            raise RuntimeError(f"{self.spec.name} was not started")
        return self._process.pid

    def start(self) -> None:
        """Start it, again if it has ended. Raises OSError when the system refuses."""
        step = [sys.executable, "-I", "-S", str(Path(lifeline.__file__)), str(os.getpid())]
        self._tail.clear()
        self._ready_lines = 0
        self.started_at = time.monotonic()
        self._process = subprocess.Popen(
            [*step, *self.spec.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(self.spec.environment),
            cwd=self._cwd,
            start_new_session=True,  # Ctrl-C is for the supervisor, which stops its processes in order
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name=self.spec.name, daemon=True)
        self._reader.start()

    def exit_code(self) -> int | None:
        """None while it runs (or was never started); negative for the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def is_ready(self) -> bool:
        """Has it said that it is ready."""
        if self.spec.ready_url is not None:
            return _answers(self.spec.ready_url)
        return self.spec.ready_line is None or self._ready_lines >= self.spec.ready_lines

    def last_words(self) -> str:
        """The end of what it wrote."""
        if self._reader is not None:
            self._reader.join(1.0)
        return "\n".join(self._tail)

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self, within: float) -> bool:
        """Wait for its end; answers whether it came within so many seconds."""
        if self._process is None:
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, within))
            return True
        return False

    def kill_group(self) -> None:
        """End whatever is left of it and of its descendants at once."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join(1.0)

    def _read(self, process: "subprocess.Popen[str]") -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                text = line.rstrip("\n")
                self._tail.append(text)
                if self.spec.ready_line is not None and self.spec.ready_line in text:
                    self._ready_lines += 1
                self._journal.write(self.spec.name, text)


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PROBE_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == _OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
