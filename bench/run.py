"""One run under the clock: from the first call's arrival at the endpoint until the work is done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.database import Cost, FreshDatabase
from bench.processes import cpu_seconds
from bench.ratios import Sample
from bench.work import Work

PATIENCE = 120.0
"""Seconds that one run may take."""

_LOOK = 0.005  # seconds


class BenchError(Exception):
    """A run did not do its work: no figure may be taken from it."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the clock said, in seconds: of the wall, of the system's processes, of PostgreSQL's."""

    seconds: float
    cpu: float
    postgres_cpu: float | None

    def sample(self, system: str, work: Work, cost: Cost | None = None) -> Sample:
        """The run as figures a call."""
        count = len(work.ids)
        return Sample(
            system=system,
            round=work.round,
            delay_ms=work.delay_ms,
            calls_per_second=count / self.seconds,
            cpu=self.cpu * 1000 / count,
            postgres_cpu=None if self.postgres_cpu is None else self.postgres_cpu * 1000 / count,
            statements=cost.statements / count if cost else None,
            transaction_control=cost.transaction_control / count if cost else None,
            wal_bytes=cost.wal_bytes / count if cost else None,
        )


def measured(work: Work, pids: Sequence[int], database: FreshDatabase | None = None, left: str = "") -> Run:
    """Wait for the work's end; `left` is the query that then answers 0. Nothing looks while calls are being made.

    Raises BenchError when the endpoint was not called for every snapshot exactly once or more, or nothing ends.
    """
    work.endpoint.wait(answered=1)
    cpu, postgres_cpu = cpu_seconds(pids), cpu_seconds([database.postgres_pid]) if database else None
    work.endpoint.wait(answered=len(work.ids))
    if database is not None:
        until(lambda: database.number(left) == 0, "work is left")
    ended = time.monotonic()
    cpu = cpu_seconds(pids) - cpu
    if database is not None and postgres_cpu is not None:
        postgres_cpu = cpu_seconds([database.postgres_pid]) - postgres_cpu
    tally = work.endpoint.tally()
    if tally["distinct"] != len(work.ids):
        raise BenchError(f"the endpoint was called for {tally['distinct']} of {len(work.ids)} snapshots")
    return Run((ended if database else tally["last_at"]) - tally["first_at"], cpu, postgres_cpu)


def until(holds: Callable[[], bool], otherwise: str) -> None:
    """Look until it holds. Raises BenchError(otherwise) when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise BenchError(f"{otherwise}, {PATIENCE:.0f} s on")
        time.sleep(_LOOK)
