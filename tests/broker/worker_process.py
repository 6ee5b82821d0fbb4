"""Real `dramatiq` commands, started and ended by a test."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import eventually

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """One `dramatiq` command in a process group of its own, its output in a file."""

    def __init__(self, log: Path, environment: dict[str, str], processes: int, threads: int) -> None:
        self.log = log
        self.processes = processes
        command = [sys.executable, "-m", "dramatiq", "tests.broker.queue_actors:setup_broker"]
        options = ["-p", str(processes), "-t", str(threads), "--worker-shutdown-timeout", "20000"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command + options,
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ready(self) -> "WorkerProcess":
        """Waits until every process of the command takes messages."""
        eventually(lambda: self.output().count("ready for action") >= self.processes or self.ended(), within=20)
        assert not self.ended(), self.output()
        return self

    def output(self) -> str:
        return self.log.read_text()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, within: float) -> int:
        return self._process.wait(within)

    def pids(self) -> list[int]:
        """The processes that work, without the one that watches them."""
        return [int(pid) for pid in re.findall(r"\[PID (\d+)\][^\n]*ready for action", self.output())]

    def peak_memory(self) -> float:
        """The most resident memory any of its processes ever had, in MB."""
        status = [Path(f"/proc/{pid}/status").read_text() for pid in self.pids()]
        return max(int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) for text in status) / 1024

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9 of the command and all its processes."""
        if not self.ended():
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
