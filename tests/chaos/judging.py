"""The verdict on a run: wait until all is at rest, then ask the database what must hold, and say it in words."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg

from tests.chaos import witness
from tests.chaos.stack import DELIVERIES, WINDOW
from tests.chaos.writers import Ledger
from tests.waiting import a_moment

_SHOWN = 40  # violations a screen

_INVARIANTS = (
    (
        "I1",
        ("I1", "J18"),
        "no Active snapshot that nobody shows, none shown is Detached; one commit holds change and intent",
    ),
    ("I2", ("I2",), "every intent ended Done or Quarantined within the backoff window"),
    ("I3", ("I3",), "one detach event a snapshot, first moment and reason stay"),
    ("I4", ("I4",), "attempts = messages handed over; each answered, or a worker's end or a wait accounts for it"),
    ("I5", ("I5",), "no session of web or worker sat in a transaction as long as a call (sampled)"),
    ("I6", ("I6",), "every claim was made by the session that held the runner lock"),
    ("I7", ("I7",), "every quarantine has one event, alerted at least once, at most once a delivery"),
    ("", ("fence",), "no failure recorded over a newer version, Done never left"),
    ("", ("acknowledged",), "no acknowledged write is missing"),
)


@dataclass
class Verdict:
    """What stands at rest. `drained`: seconds from the last fault to rest."""

    attempts: witness.Attempts
    drained: float
    rows: dict[str, int]
    violations: list[str]
    watched: bool = True
    """Were sessions watched during the run (I5)."""

    def lines(self) -> list[str]:
        """The same, to be read."""
        counted = self.attempts
        lines = ["at rest"]
        lines += [f"  {name:24} {count:8}" for name, count in self.rows.items()]
        lines += [f"  at rest {self.drained:.1f} s after every process was up again", "invariants, each asked by SQL"]
        lines += [
            f"  {name:4} {self._count(marks):5} violations  {what}"
            for name, marks, what in _INVARIANTS
            if self.watched or name != "I5"
        ]
        i4 = (
            f"       I4: {counted.claimed} attempts counted, each with its message; {counted.answered} have their"
            f" history; {counted.worker_away} were cut short while a worker was away, {counted.waited} waited in the"
            f" queue past their due time, {counted.overtaken} were overtaken by an answer to an earlier one,"
            f" {len(counted.unaccounted)} are unaccounted for"
        )
        return [*lines, i4, *(f"  violation: {line}" for line in self.violations[:_SHOWN])]

    def _count(self, marks: tuple[str, ...]) -> int:
        return sum(1 for line in self.violations if line.startswith(marks))


def judge(
    url: str,
    away: Iterable[tuple[str, datetime, datetime]],
    ledger: Ledger,
    log: Path,
    detached: Mapping[str, set[tuple[str, str]]],
) -> Verdict:
    """Wait for rest, as long as the backoff window, and judge.

    `away`: when a worker was killed, frozen or cut off. `log`: what the processes said. `detached`: the first detaches
    that were answered, a snapshot.
    """
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True, application_name="pin-faults-judge") as connection:
        while (left := witness.unfinished(connection)) and time.monotonic() - began < WINDOW:
            a_moment(0.1)
        drained = time.monotonic() - began
        found = [f"I2 {left} things are unfinished {drained:.0f} s after the last fault"] if left else []
        accounted = witness.attempts(connection, away)
        found += witness.broken(connection)
        found += accounted.unaccounted
        found += witness.lost_writes(connection, ledger.revisions, ledger.deleted)
        found += witness.alerts(connection, log.read_text(encoding="utf-8").splitlines(), DELIVERIES)
        found += [
            f"I3 snapshot {snapshot} was answered with several first detaches: {sorted(said)}"
            for snapshot, said in detached.items()
            if len(said) > 1
        ]
        return Verdict(accounted, drained, witness.figures(connection), found)
