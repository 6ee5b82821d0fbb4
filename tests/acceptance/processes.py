"""Real commands started by a test, and what of them is still alive."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIN = [sys.executable, "-m", "pin.cli"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder of the test's own that root's PostgreSQL may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="pin-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def environment(**changed: str) -> dict[str, str]:
    """The environment of these tests without a setting and without a home, as a fresh machine may have it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PIN_") and name != "HOME"}
    return ours | changed


@contextmanager
def started(
    command: list[str], settings: Mapping[str, str], *, log: Path | None = None, cwd: Path = ROOT
) -> Iterator["subprocess.Popen[str]"]:
    """The command in a session of its own, killed if it outlives the block; stderr in `log`, or among its stdout."""
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(log.open("w")) if log else subprocess.STDOUT
        process = stack.enter_context(
            subprocess.Popen(
                command,
                cwd=cwd,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def alive(mark: str) -> list[str]:
    """The processes that name `mark`, a path, in their command or environment, each as its command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            with contextlib.suppress(PermissionError):
                if mark.encode() in command + (folder / "environ").read_bytes():
                    found.append(f"{folder.name} {command.replace(bytes(1), b' ').decode()}")
    return found
