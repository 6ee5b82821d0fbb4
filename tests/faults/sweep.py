"""A path at its every border: killed at each, and frozen at each call and after each commit."""

import time
from dataclasses import dataclass, field

from tests.faults.orders import NEVER
from tests.faults.site import Site
from tests.faults.trial import Fault, Trial, attempt

_FREEZES = ("http", "commit after")
_MOST = 1000  # borders of a path; more means that it never completes


@dataclass
class Sweep:
    """What came of a path's points."""

    path: str
    borders: int = 0
    killed: int = 0
    frozen: int = 0
    seconds: float = 0.0
    said: str = ""
    violations: list[str] = field(default_factory=list)

    def join(self, other: "Sweep") -> None:
        """Take in what another process found of the same path."""
        self.borders = max(self.borders, other.borders)
        self.killed += other.killed
        self.frozen += other.frozen
        self.seconds += other.seconds
        self.violations += other.violations

    def add(self, trial: Trial, fault: str) -> None:
        """Keep what a trial broke, with the point that shows it."""
        self.violations += [f"{fault} at border {trial.number} ({trial.border}): {one}" for one in trial.violations]


def sample(site: Site, path: str, every: int) -> Sweep:
    """`sweep` in short: the path undisturbed, then each `every`-th of the borders that were seen then."""
    return sweep(site, path, every=every, to_the_end=False)


def sweep(
    site: Site, path: str, *, every: int = 1, start: int = 1, to_the_end: bool = True, breakage: str | None = None
) -> Sweep:
    """Try `path` with a fault at its borders number `start`, `start + every`, … until it completes.

    A sweep that starts at 1 tries it undisturbed first.

    The scheduler's path is not frozen: a frozen holder keeps the runner lock, and losing it is tested by itself.
    """
    site.lay(path)
    found = Sweep(path)
    began = time.monotonic()
    most = _MOST
    if start == 1:
        whole = attempt(site, path, NEVER, Fault.KILLED, breakage=breakage)
        found.said = whole.said
        found.add(whole, "undisturbed")
        most = most if to_the_end else whole.crossed + 1
    free: list[int] = []
    for number in range(start if to_the_end else every, most, every):
        trial = attempt(site, path, number, Fault.KILLED, breakage=breakage)
        if trial.completed:
            found.add(trial, "not reached")
            break
        found.killed += 1
        found.borders = number
        found.add(trial, "killed")
        if path != "tick" and not trial.in_transaction and trial.border.startswith(_FREEZES):
            free.append(number)
    else:
        if to_the_end:
            found.violations.append(f"more than {_MOST} borders: the path does not complete")
    for number in free:
        trial = attempt(site, path, number, Fault.FROZEN, breakage=breakage)
        if trial.border and not trial.in_transaction:
            found.frozen += 1
        found.add(trial, "frozen")
    found.seconds = time.monotonic() - began
    return found
