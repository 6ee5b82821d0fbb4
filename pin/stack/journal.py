"""One readable log of many processes: each line prefixed with the name of who said it."""

import threading
from typing import TextIO

_COLORS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)


class Journal:
    """Writes lines of several threads to one stream, whole; colored when the stream is a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._colored = stream.isatty()
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._width = 0

    def introduce(self, *names: str) -> None:
        """Who will write; the longest name sets the width of the prefix."""
        self._names += [name for name in names if name not in self._names]
        self._width = max(map(len, self._names), default=0)

    def write(self, name: str, line: str) -> None:
        """One line of `name`. A stream that is gone loses the line and nothing else."""
        prefix = f"{name:<{self._width}} |"
        if self._colored:
            color = _COLORS[self._names.index(name) % len(_COLORS)] if name in self._names else 0
            prefix = f"\x1b[{color}m{prefix}\x1b[0m"
        with self._lock:
            try:
                self._stream.write(f"{prefix} {line}\n")
                self._stream.flush()
            except (OSError, ValueError):
                self._colored = False
