"""The two things that are injected because tests must own them: the wall clock and the ids."""

from datetime import UTC, datetime
from uuid import UUID

import uuid_utils


def utc_now() -> datetime:
    """The application's UTC clock, aware (G11). The only place that reads it; passed down as `now`."""
    return datetime.now(tz=UTC)


def new_id() -> UUID:
    """A fresh UUID v7 (J8): time-ordered, so that new rows land together at the index's end.

    Its time part is the real clock's, also where a test has frozen `utc_now`. Lists of entries are in its order.
    """
    return UUID(int=uuid_utils.uuid7().int)
