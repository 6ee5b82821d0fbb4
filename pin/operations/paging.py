"""Pages by key: the key of the last row, as one word that can stand in a URL or on a command line."""

import base64
import binascii
from datetime import datetime
from uuid import UUID


class PageKeyError(ValueError):
    """A key that no page gave."""


def written(moment: datetime, id_: UUID) -> str:
    """The key of a row."""
    return base64.urlsafe_b64encode(f"{moment.isoformat()}|{id_}".encode()).decode().rstrip("=")


def read(key: str | None) -> tuple[datetime, UUID] | None:
    """The row that a key names; None for none. Raises PageKeyError."""
    if not key:
        return None
    try:
        moment, _, id_ = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode().partition("|")
        when, which = datetime.fromisoformat(moment), UUID(id_)
    except (ValueError, binascii.Error):
        when, which = datetime.min, UUID(int=0)  # noqa: DTZ901 - told from a real one by its missing zone
    if when.tzinfo is None:
        raise PageKeyError("this page's key is not one that a page gave")
    return when, which
