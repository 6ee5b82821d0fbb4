"""The stage that prunes what is over: bounded in time and in rows, each kind by its own age (docs/retention.md)."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Engine

from db.errors import transact
from db.outbox import retention
from db.outbox.retention import START, Kind, Window
from pin.config.sections import RetentionOptions
from pin.telemetry import metrics
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

metrics.declare(metrics.PRUNED, [kind.value for kind in Kind])

WINDOW = 1000
"""Rows that one transaction looks at."""

Ages = Mapping[Kind, timedelta]
"""How long each kind is kept after its completion; what is not named is kept for ever."""


def ages_of(options: RetentionOptions) -> Ages:
    """The ages that the settings name; what is `off` is not among them."""
    named = {kind: getattr(options, kind.value) for kind in Kind}
    return {kind: age for kind, age in named.items() if age is not None}


def stage(
    engine: Engine, ages: Ages, now: Callable[[], datetime], *, seconds: float, window: int = WINDOW
) -> dict[Kind, int]:
    """Prune for up to `seconds`, each kind for its share of what is left; answers how many rows went of each.

    A lap that is over begins again in the next run. Raises sqlalchemy errors; what was committed by then stays so.
    """
    until = time.monotonic() + seconds
    wanted = [kind for kind in Kind if kind in ages]
    pruned: dict[Kind, int] = {}
    for number, kind in enumerate(wanted):
        share = time.monotonic() + (until - time.monotonic()) / (len(wanted) - number)
        if count := _prune(engine, kind, ages[kind], now, share, window):
            pruned[kind] = count
            log.info("pruned", kind=kind.value, rows=count)
    return pruned


def _prune(engine: Engine, kind: Kind, age: timedelta, now: Callable[[], datetime], until: float, window: int) -> int:
    with engine.connect() as connection:
        after = retention.place(connection, kind)
    count = 0
    while time.monotonic() < until:
        moment = now()
        done = _window(engine, kind, moment, age, window, after=after)
        count += done.pruned
        metrics.PRUNED.labels(kind.value).inc(done.pruned)
        after = done.place
        if after == START and (kind is not Kind.MESSAGES or not done.pruned):
            break
    return count


def _window(engine: Engine, kind: Kind, now: datetime, age: timedelta, window: int, *, after: UUID) -> Window:
    return transact(
        engine,
        lambda connection: retention.prune(connection, kind, before=now - age, after=after, size=window, now=now),
    )
