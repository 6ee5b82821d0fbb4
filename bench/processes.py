"""Children of the bench: started in the background, ended with it, and what they cost in processor time."""

import contextlib
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_STOP_WITHIN = 15.0
_TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(
    commands: Sequence[Sequence[str]], *, environment: Mapping[str, str], folder: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run these side by side with `folder` as theirs, their output in `folder/output.log`; end them afterwards."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_running(command, environment, folder)) for command in commands]


@contextlib.contextmanager
def _running(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "output.log").open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                # SIGTERM is the process's own to hand on; what is left of its group after that is not waited for.
                process.send_signal(number) if number == signal.SIGTERM else os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_WITHIN)
                break


def clean_environment(**settings: str) -> dict[str, str]:
    """The environment without any setting of the project, and with `settings`."""
    return {name: value for name, value in os.environ.items() if not name.upper().startswith("PIN_")} | settings


def cpu_seconds(roots: Sequence[int]) -> float:
    """Processor time so far of these processes and all below them, ended children included (Linux)."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                used[int(folder.name)] = sum(map(int, fields[11:15]))
                children[int(fields[1])].append(int(folder.name))
    ticks, unseen = 0, list(roots)
    while unseen:
        pid = unseen.pop()
        ticks += used.get(pid, 0)
        unseen += children[pid]
    return ticks / _TICKS
