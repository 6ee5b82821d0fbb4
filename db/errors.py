"""What the errors of PostgreSQL and its driver mean to a caller."""

from sqlalchemy.exc import DBAPIError, OperationalError

_AWAY = ("08", "57P", "53300")
"""SQLSTATEs of a server that is not to be had now: no connection, stopping or starting, no slot free."""


def is_away(error: BaseException | None) -> bool:
    """Whether the database could not be had at all, so that the same statement may succeed once it is back (A24)."""
    if not isinstance(error, DBAPIError):
        return False
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate is not None:
        return error.connection_invalidated or sqlstate.startswith(_AWAY)
    return error.connection_invalidated or isinstance(error, OperationalError)
