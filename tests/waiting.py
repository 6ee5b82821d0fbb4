"""How tests wait: for a condition or a line, never for a while."""

import asyncio
import contextlib
import re
import subprocess
import threading
from collections.abc import Callable
from typing import IO, TypeVar

_Value = TypeVar("_Value")


def eventually(predicate: Callable[[], _Value], *, within: float = 10.0, every: float = 0.02) -> _Value:
    """The predicate's first true value, asked for every `every` seconds.

    Raises AssertionError, naming the predicate and its last value, when `within` seconds have passed. Both are real
    seconds also while freezegun holds the clock (it holds time.monotonic too): timers and events wait in the system.
    """
    expired, pause = threading.Event(), threading.Event()
    deadline = threading.Timer(within, expired.set)
    deadline.daemon = True
    deadline.start()
    try:
        while not (value := predicate()):
            assert not expired.is_set(), f"not within {within} s: {_name(predicate)}, which last said {value!r}"
            pause.wait(every)
    finally:
        deadline.cancel()
    return value


def a_moment(seconds: float) -> None:
    """The pace of a loop that looks for a condition, or of a schedule whose times are its input."""
    threading.Event().wait(seconds)


async def silence(seconds: float) -> None:
    """A scripted server says nothing for so long: its behaviour, not a test's wait."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def line(process: subprocess.Popen[str], pattern: str, within: float = 30.0) -> re.Match[str]:
    """The match of `pattern` in the first line of the child's stdout that has one.

    Lines before it are consumed; those after it stay in the pipe for a next call. Raises AssertionError, with what was
    read, when the child's output ends or `within` seconds have passed.
    """
    assert process.stdout is not None, "start the child with stdout=PIPE, text=True"
    read: list[str] = []
    found: list[re.Match[str]] = []
    reader = threading.Thread(target=_read_until, args=(process.stdout, re.compile(pattern), read, found), daemon=True)
    reader.start()
    reader.join(within)
    assert found, f"no line like {pattern!r} within {within} s (exit code {process.poll()}):\n{''.join(read)}"
    return found[0]


def _read_until(stream: IO[str], pattern: re.Pattern[str], read: list[str], found: list[re.Match[str]]) -> None:
    for text in stream:
        read.append(text)
        if match := pattern.search(text):
            found.append(match)
            return


def _name(predicate: Callable[[], object]) -> str:
    code = getattr(predicate, "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{getattr(predicate, '__qualname__', repr(predicate))}{where}"
