"""The arithmetic: a ratio is taken within a round, of runs some seconds apart, and the median of the rounds counts.

The speed of a shared machine wanders by a third within minutes; a ratio within a round wanders far less.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

PRODUCT = "product"
CLIENT_LOOP = "one-client loop"
PLAIN_DRAMATIQ = "plain dramatiq-pg"
GRAPHILE_WORKER = "graphile-worker"
PG_BOSS = "pg-boss"
PGQUEUER = "pgqueuer (aiohttp)"
PROCRASTINATE = "procrastinate"
AIOHTTP_LOOP = "aiohttp loop"
BOUNDS = {
    CLIENT_LOOP: 1.5,
    PLAIN_DRAMATIQ: 15.0,
    GRAPHILE_WORKER: 1.0,
    PG_BOSS: 1.0,
    PGQUEUER: 1.2,
    PROCRASTINATE: 10.0,
    AIOHTTP_LOOP: 0.9,
}
"""What the product must reach, as a multiple of each; a peer that is not there is not compared with."""
CEILINGS = {
    "cpu": ("CPU s a 1,000 calls", 0.16),
    "postgres_cpu": ("PostgreSQL's CPU s a 1,000 calls", 0.05),
    "statements": ("SQL statements a call, BEGIN and COMMIT included", 0.12),
    "wal_bytes": ("WAL bytes a call", 1_000.0),
}
"""What the product may cost at most."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one system: `cpu` and `postgres_cpu` in seconds a 1,000 calls, the rest a call."""

    system: str
    round: int
    delay_ms: int
    calls_per_second: float
    cpu: float
    postgres_cpu: float | None = None
    statements: float | None = None
    transaction_control: float | None = None
    wal_bytes: float | None = None


def ratio(samples: Iterable[Sample], over: str, under: str, delay_ms: int) -> float:
    """Median over the rounds of the calls/s of `over` as a multiple of those of `under`, at this delay.

    Raises ValueError when no round has both.
    """
    rates = {(s.system, s.round): s.calls_per_second for s in samples if s.delay_ms == delay_ms}
    rounds = sorted({number for system, number in rates if system == over and (under, number) in rates})
    if not rounds:
        raise ValueError(f"no round has both {over} and {under} at {delay_ms} ms")
    return median(rates[over, number] / rates[under, number] for number in rounds)


def middle(samples: Iterable[Sample], system: str, delay_ms: int, figure: str) -> float | None:
    """Median of a figure over the rounds, None where the system has none."""
    values = [getattr(s, figure) for s in samples if s.system == system and s.delay_ms == delay_ms]
    known = [value for value in values if value is not None]
    return median(known) if known else None


def verdict(samples: Sequence[Sample], delays_ms: Sequence[int]) -> tuple[list[str], bool]:
    """The last lines, one a bound and delay, and whether every bound is reached.

    Raises ValueError when the product or one of the two yardsticks was not measured.
    """
    said, reached = [], True
    measured = {sample.system for sample in samples} | {CLIENT_LOOP, PLAIN_DRAMATIQ}
    for other, bound in BOUNDS.items():
        for delay_ms in delays_ms if other in measured else ():
            found = ratio(samples, PRODUCT, other, delay_ms)
            below = found < bound
            reached = reached and not below
            said.append(
                f"bench: product / {other} = {found:.2f} (bound {bound:g}) at {delay_ms} ms{' BELOW' if below else ''}"
            )
    for figure, (name, ceiling) in CEILINGS.items():
        for delay_ms in delays_ms:
            cost = _cost(samples, delay_ms, figure)
            if cost is None:
                continue
            above = cost > ceiling
            reached = reached and not above
            said.append(
                f"bench: {name} = {cost:,.3g} (at most {ceiling:g}) at {delay_ms} ms{' ABOVE' if above else ''}"
                if cost < 1
                else f"bench: {name} = {cost:,.0f} (at most {ceiling:g}) at {delay_ms} ms{' ABOVE' if above else ''}"
            )
    return said, reached


def _cost(samples: Sequence[Sample], delay_ms: int, figure: str) -> float | None:
    cost = middle(samples, PRODUCT, delay_ms, figure)
    control = middle(samples, PRODUCT, delay_ms, "transaction_control") if figure == "statements" else None
    return None if cost is None else cost + (control or 0.0)
