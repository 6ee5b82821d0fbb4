"""Schedulers and workers as real processes on one database, each with its output in a file."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.acceptance.processes import ROOT, environment
from tests.serving import Keys
from tests.waiting import eventually

TIMINGS = {
    "PIN_RETRY__POLLING_INTERVAL": "1s",
    "PIN_RETRY__MAX_RUN_DURATION": "2s",
    "PIN_RETRY__LOCK_TTL": "3s",
    "PIN_RETRY__BATCH_SIZE": "20",
    "PIN_RETRY__MAX_ATTEMPTS": "100",
    "PIN_RETRY__BACKOFF_BASE": "5s",
    "PIN_RETRY__BACKOFF_CAP": "5s",
    "PIN_RETRY__DETACH_CALL_TIMEOUT": "1s",
    "PIN_QUEUE__LEASE": "3s",
    "PIN_QUEUE__POLL": "0.5s",
    "PIN_WORKER__TIME_LIMIT": "2s",
    "PIN_ALERTS__TIMEOUT": "0.5s",
}
"""Production's rules at a hundredth of its time."""


class Process:
    """One command in a session of its own."""

    def __init__(self, log: Path, command: list[str], settings: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(**settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def says(self, pattern: str, *, times: int = 1, within: float = 30.0) -> "Process":
        """Waits until its output has the pattern so often; AssertionError with the output's end if it ends before."""
        eventually(
            lambda: len(re.findall(pattern, self.output())) >= times or self.returncode is not None, within=within
        )
        assert len(re.findall(pattern, self.output())) >= times, self.output()[-3000:]
        return self

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, within: float) -> int:
        return self._process.wait(within)

    def children(self) -> list[int]:
        """Its descendants that work: dramatiq's worker processes."""
        return [int(pid) for pid in re.findall(r"PID (\d+)\)?[^\n]*ready for action", self.output())]

    def kill(self) -> None:
        """SIGKILL to the command and all that it started."""
        if self.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)


class Fleet:
    """Starts processes of the same settings; kills what is left of them at the end of its block."""

    def __init__(
        self, folder: Path, database: str, selections_url: str, keys: Keys, settings: Mapping[str, str]
    ) -> None:
        self._folder = folder
        self._settings = {
            **TIMINGS,
            "PIN_DATABASE_URL": database,
            "PIN_SELECTIONS_URL": selections_url,
            "PIN_AUTH__PUBLIC_KEYS": str(keys.public),
            "PIN_AUTH__M2M_PRIVATE_KEY": str(keys.private),
            **settings,
        }
        self.processes: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()

    def scheduler(self) -> Process:
        """A scheduler that ticks."""
        return self._start([sys.executable, "scheduler.py"]).says("scheduler started")

    def worker(self, *, processes: int = 1, threads: int = 2, grace: int = 5000) -> Process:
        """A worker that takes messages; `grace` in milliseconds is how long a stop waits."""
        counts = ["-p", str(processes), "-t", str(threads), "--worker-shutdown-timeout", str(grace)]
        started = self._start([sys.executable, "-m", "dramatiq", "actors", *counts])
        return started.says("worker started", times=processes)

    def _start(self, command: list[str]) -> Process:
        process = Process(self._folder / f"{len(self.processes)}.log", command, self._settings)
        self.processes.append(process)
        return process
