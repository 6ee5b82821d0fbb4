"""Which faults come when: dealt from a shuffled deck by a seed, so that the same seed deals the same again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.gateway import Mode


class Kind(StrEnum):
    """What is done."""

    KILL = "kill"
    KILL_CHILD = "kill a child of"
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT later."""
    TERMINATE = "terminate"
    """SIGTERM; what has not ended when it is to start again is killed, as a deployment does."""
    RESTART = "restart"
    CRASH = "crash"
    END_SESSIONS = "end sessions of"
    SELECTIONS = "selections:"


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` and `lasts` in seconds; what cannot last (a session that is ended) has 0."""

    at: float
    kind: Kind
    target: str
    lasts: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.target}"

    @property
    def name(self) -> str:
        """Its kind in the counts: without the number of the process."""
        return str(self).rstrip("-12")


WORKERS = ("worker-1", "worker-2")
SCHEDULERS = ("scheduler-1", "scheduler-2")
DATABASE = "PostgreSQL"

# (kind, targets, shortest and longest)
_DECK: tuple[tuple[Kind, tuple[str, ...], float, float], ...] = (
    (Kind.KILL, WORKERS, 0.2, 3.0),
    (Kind.KILL, WORKERS, 0.2, 6.0),
    (Kind.KILL, SCHEDULERS, 0.2, 3.0),
    (Kind.KILL, ("news",), 0.2, 1.5),
    (Kind.KILL, ("selections",), 0.2, 3.0),
    (Kind.KILL_CHILD, WORKERS, 0.0, 0.0),
    (Kind.FREEZE, WORKERS, 1.0, 7.0),
    (Kind.FREEZE, SCHEDULERS, 1.0, 7.0),
    (Kind.FREEZE, ("news",), 0.5, 4.0),
    (Kind.FREEZE, ("selections",), 0.5, 4.0),
    (Kind.TERMINATE, (*WORKERS, *SCHEDULERS), 0.5, 5.0),
    (Kind.TERMINATE, ("news", "selections"), 0.5, 3.0),
    (Kind.RESTART, (DATABASE,), 0.0, 1.5),
    (Kind.CRASH, (DATABASE,), 0.0, 1.0),
    (Kind.END_SESSIONS, ("pin-runner-lock",), 0.0, 0.0),
    (Kind.END_SESSIONS, ("pin-worker-queue",), 0.0, 0.0),
    (Kind.END_SESSIONS, ("pin-worker",), 0.0, 0.0),
    (Kind.END_SESSIONS, ("pin-web",), 0.0, 0.0),
    *((Kind.SELECTIONS, (str(mode),), 1.0, 4.0) for mode in Mode if mode is not Mode.PASS),
)


def schedule(seed: int, seconds: float) -> Iterator[Fault]:
    """The faults of a run, in order. A run long enough (about half a minute) has every kind before any comes twice."""
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    at = 0.5
    while True:
        deck = list(_DECK)
        chance.shuffle(deck)
        for kind, targets, shortest, longest in deck:
            target, lasts = chance.choice(targets), chance.uniform(shortest, longest)
            if at + min(lasts, 1.0) > seconds:
                return
            yield Fault(at, kind, target, min(lasts, seconds - at))
            at += chance.uniform(0.6, 1.8)
