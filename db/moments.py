"""Times that PostgreSQL can store and Python cannot hold: infinity, and years beyond 9999 or before 1 (A29).

A row that holds one must not keep the other rows from whoever reads. So each is read as the nearest moment that Python
has, and `is_unreadable` tells it from a true one.
"""

from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

TOO_LATE = datetime.max.replace(tzinfo=UTC)
TOO_EARLY = datetime.min.replace(tzinfo=UTC)


def is_unreadable(moment: datetime | None) -> bool:
    """Whether the column held what Python cannot hold."""
    return moment in {TOO_LATE, TOO_EARLY}


class _AnyMoment(Loader):
    """Reads text as the pinned DateStyle and TimeZone write it: `2026-12-01 10:00:00.5+00`."""

    def load(self, data: Buffer) -> datetime:
        written = str(data, "ascii")
        try:
            return datetime.fromisoformat(written)
        except ValueError:
            return TOO_EARLY if written == "-infinity" or written.endswith("BC") else TOO_LATE


def read_any_moment(session: "psycopg.Connection[Any]") -> None:
    """From now on the session's timestamps are read so. Nothing here asks for the binary format."""
    session.adapters.register_loader("timestamptz", _AnyMoment)
