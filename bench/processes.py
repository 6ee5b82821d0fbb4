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
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "output.log").open("ab") as output:
            processes.extend(
                subprocess.Popen(
                    command, env=environment, cwd=folder, stdout=output, stderr=output, start_new_session=True
                )
                for command in commands
            )
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """What does not end by itself is killed with all its group."""
    try:
        process.wait(_STOP_WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
