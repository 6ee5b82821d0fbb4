"""Time travel: freezegun holds the wall clock, and the wall clock only.

freezegun freezes the monotonic clock as well, under which nothing that waits would ever wake; this puts the real one
back wherever it was replaced (deadlines and timeouts are on it: stack and decisions).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import freezegun.api
import litestar.plugins.pydantic  # noqa: F401 - must be imported before anything is frozen

_REAL = {
    "monotonic": freezegun.api.real_monotonic,
    "monotonic_ns": freezegun.api.real_monotonic_ns,
    "perf_counter": freezegun.api.real_perf_counter,
    "perf_counter_ns": freezegun.api.real_perf_counter_ns,
}
_IGNORE = ["psycopg", "psycopg_pool", "sqlalchemy.pool", "sqlalchemy.util", "httpcore", "threading", "queue", "logging"]


class Clock:
    """The frozen wall clock of a test."""

    def __init__(self, frozen: Any) -> None:
        self._frozen = frozen

    @property
    def now(self) -> datetime:
        """The frozen moment."""
        moment: datetime = self._frozen.time_to_freeze
        return moment

    def forward(self, span: timedelta) -> None:
        """Move the wall clock by `span`, back as well."""
        self._frozen.tick(span)

    def move_to(self, moment: datetime) -> None:
        """Set the wall clock."""
        self._frozen.move_to(moment)


@contextmanager
def wall_clock_at(moment: str | datetime) -> Iterator[Clock]:
    """Freeze the wall clock at `moment` (a string is ISO 8601, UTC); threads started before and after see it alike."""
    freezer = freezegun.api.freeze_time(moment, real_asyncio=True, ignore=_IGNORE)
    frozen = freezer.start()
    try:
        for name, real in _REAL.items():
            setattr(time, name, real)
        for module, name, original in freezer.undo_changes:
            if original in _REAL.values():
                setattr(module, name, original)
        yield Clock(frozen)
    finally:
        freezer.stop()
