"""What an error of PostgreSQL, its driver or the pool means to whoever met it (G30).

One table from SQLSTATEs to meanings, asked by everyone: claim, outcome, requeue, the web, the command line, the queue's
consumer. What to do about a meaning is the caller's; what an error means is decided here alone.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

_Done = TypeVar("_Done")

VICTIM_TRIES = 3
"""How often a transaction that others made impossible is tried in all."""


class Meaning(StrEnum):
    """A closed set: what the error says of the next try."""

    AWAY = "away"
    """No server to be had: the same may succeed once one is. Nothing is known of a COMMIT that was under way."""
    BUSY = "busy"
    """The server gave up waiting for others (or they for us), and nothing was done: try again."""
    REFUSED = "refused"
    """This server or this role does not allow it here: read-only, a right that is missing, a password."""
    NOT_MIGRATED = "not migrated"
    """The schema is not this version's."""
    BAD_DATA = "bad data"
    """A value that cannot be stored: isolate its row, the others may pass."""
    FAULT = "fault"
    """Anything else: a fault of ours or of the server's."""


_MEANINGS: dict[str, Meaning] = {
    "08": Meaning.AWAY,  # connection exceptions
    "25P02": Meaning.FAULT,  # a statement in a transaction that has failed already
    "25P03": Meaning.AWAY,  # the session was ended: idle in a transaction
    "25P04": Meaning.AWAY,  # the session was ended: the transaction took too long
    "53": Meaning.AWAY,  # out of connections, memory or disk
    "57014": Meaning.BUSY,  # the statement took too long, or somebody cancelled it
    "57P": Meaning.AWAY,  # stopping, starting, the session was ended
    "58": Meaning.AWAY,  # errors of the system below the server
    "40": Meaning.BUSY,  # victims of a deadlock or a serialization failure
    "55": Meaning.BUSY,  # a lock that was not had, an object in use
    "25006": Meaning.REFUSED,  # read-only: a standby, or a session opened on one
    "25": Meaning.FAULT,
    "28": Meaning.REFUSED,  # role or password
    "3D": Meaning.REFUSED,  # no such database
    "42501": Meaning.REFUSED,  # a right is missing
    "42P01": Meaning.NOT_MIGRATED,  # no such table
    "42703": Meaning.NOT_MIGRATED,  # no such column
    "42704": Meaning.NOT_MIGRATED,  # no such type
    "42883": Meaning.NOT_MIGRATED,  # no such function
    "3F": Meaning.NOT_MIGRATED,  # no such schema
    "21": Meaning.BAD_DATA,
    "22": Meaning.BAD_DATA,
    "23": Meaning.BAD_DATA,
    "44": Meaning.BAD_DATA,
    "P0001": Meaning.BAD_DATA,  # a trigger of ours refuses
}
"""By SQLSTATE or the beginning of one; the longest that fits counts."""

_OUR_WORDS = {
    Meaning.AWAY: "the database does not answer",
    Meaning.BUSY: "the database is busy: it gave up waiting for a lock, a connection or a statement; try again",
    Meaning.REFUSED: "the database refuses this here",
    Meaning.NOT_MIGRATED: "the database's schema is not this version's: run `pin migrate`",
    Meaning.BAD_DATA: "the database refuses a value",
    Meaning.FAULT: "the database reports an error",
}


def meaning_of(error: BaseException | None) -> Meaning | None:
    """What an error of SQLAlchemy or of psycopg means; None for an error that is neither's."""
    match error:
        case PoolTimeoutError():
            return Meaning.BUSY
        case DBAPIError(connection_invalidated=True) if sqlstate_of(error) is None:
            return Meaning.AWAY
        case DBAPIError():
            return _of_driver(error.orig)
        case psycopg.Error():
            return _of_driver(error)
        case _:
            return None


def _of_driver(error: BaseException | None) -> Meaning:
    state = sqlstate_of(error)
    if state is not None:
        return next((_MEANINGS[state[:n]] for n in range(len(state), 1, -1) if state[:n] in _MEANINGS), Meaning.FAULT)
    match error:
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return Meaning.AWAY
        case psycopg.DataError():
            return Meaning.BAD_DATA
        case _:
            return Meaning.FAULT


def sqlstate_of(error: BaseException | None) -> str | None:
    """The SQLSTATE that the server gave, None where no server spoke."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(cause, "sqlstate", None)
    return state if isinstance(state, str) else None


def is_away(error: BaseException | None) -> bool:
    """Whether no server was to be had, so that the same may succeed once one is (A24)."""
    return meaning_of(error) is Meaning.AWAY


def is_passing(error: BaseException | None) -> bool:
    """Whether the error says nothing of the data: away, busy, or refused here (a standby becomes writable again)."""
    return meaning_of(error) in {Meaning.AWAY, Meaning.BUSY, Meaning.REFUSED}


def is_victim(error: BaseException | None) -> bool:
    """Whether others made this transaction impossible and nothing of it was done: it is tried again whole (G21)."""
    state = sqlstate_of(error)
    return state is not None and state.startswith("40") and state != "40003"


def transact(engine: Engine, work: Callable[[Connection], _Done], *, tries: int = VICTIM_TRIES) -> _Done:
    """`work` in a transaction of its own, again whole when it was the victim of others (G21).

    `work` must do nothing that a rollback does not undo. Raises what the last try raised.
    """
    for left in reversed(range(tries)):
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            if left == 0 or not is_victim(error):
                raise
    raise AssertionError("the last try returns or raises")


def describe(error: BaseException) -> str:
    """One line for people: what it means, and the server's own words where they hold no data."""
    meaning, state = meaning_of(error), sqlstate_of(error)
    if meaning is None:
        return type(error).__name__
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    if state == "25006":
        return "the database is read-only here (25006): connect to the primary, or wait until this server is one"
    if meaning is Meaning.REFUSED:
        return f"{_OUR_WORDS[meaning]} ({state}): {cause.diag.message_primary}"
    if meaning is Meaning.AWAY:
        said = next(iter(str(cause).splitlines()), type(cause).__name__)
        return f"{_OUR_WORDS[meaning]}: {said}"
    return f"{_OUR_WORDS[meaning]} ({state})" if state and meaning is not Meaning.NOT_MIGRATED else _OUR_WORDS[meaning]
