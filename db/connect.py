"""The one way to a session of PostgreSQL: pools, lock, queue, migrations, checks and the local stack take it (G28).

A session's settings are its own. Nothing of the role's, the database's, the server's or the shell's settings shows
through in what is pinned here; what is not pinned (work_mem, synchronous_commit and the like) is the operators' to set,
in the URL's `options` too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.abc import AdaptContext
from sqlalchemy import Engine, ExceptionContext, NullPool, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from db.errors import sqlstate_of
from db.moments import read_any_moment
from pin.config.database_url import parameters

Session = psycopg.Connection[tuple[Any, ...]]

READ_ONLY = "25006"

_PINNED = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "client_encoding": "UTF8",
    "search_path": "public",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_min_messages": "notice",
}

_SINCE = {140000: "idle_session_timeout", 170000: "transaction_timeout"}
"""Limits that would end a session which listens, or a long run, by the server's version that brought each."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a session's statement may run, wait for a lock, and leave a transaction idle; seconds, 0 for no end."""

    statement: float
    lock: float
    idle_in_transaction: float


OF_A_POOL = Limits(statement=30, lock=10, idle_in_transaction=30)
"""They keep a session from holding rows for ever when its process hangs."""
OF_THE_QUEUE = Limits(statement=10, lock=10, idle_in_transaction=10)
OF_A_CHECK = Limits(statement=5, lock=2, idle_in_transaction=5)
NONE = Limits(statement=0, lock=0, idle_in_transaction=0)
"""For the runner's lock and for migrations, which set limits of their own."""


def connect(
    url: str,
    *,
    application_name: str,
    limits: Limits,
    autocommit: bool = False,
    context: AdaptContext | None = None,
) -> Session:
    """A session on the primary, with every setting that our statements depend on its own (G28).

    It tries the URL's hosts in turn for 2 s each, a single one for 5 s; a dead network shows within about 10 s.
    Raises ValueError for a URL that settings refuse, psycopg.OperationalError when no server that takes writes is to
    be had.
    """
    session = psycopg.connect(**parameters(url, application_name), autocommit=True, context=context)  # type: ignore[arg-type]
    try:
        read_any_moment(session)
        pin_settings(session, limits)
        session.autocommit = autocommit
    except BaseException:
        session.close()
        raise
    return session


def pin_settings(session: Session, limits: Limits) -> None:
    """Set what the session's statements depend on: a SET reaches the server behind a session-mode pooler as well."""
    settings = _PINNED | {
        "statement_timeout": _milliseconds(limits.statement),
        "lock_timeout": _milliseconds(limits.lock),
        "idle_in_transaction_session_timeout": _milliseconds(limits.idle_in_transaction),
    }
    settings |= {name: "0" for version, name in _SINCE.items() if session.info.server_version >= version}
    # One statement, and no parameters: a server in an encoding of its own reads ASCII like any other.
    changed = ", ".join(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in settings.items())
    session.execute(f"SELECT {changed}".encode())


def make_engine(
    url: str,
    *,
    pool_size: int = 10,
    application_name: str = "pin",
    limits: Limits = OF_A_POOL,
    pool_timeout: float = 10,
) -> Engine:
    """An engine with a bounded pool of sessions as `connect` makes them; connects on first use.

    A session that turns out to be on a server that takes no writes is dropped with the rest of its pool, so that the
    next one looks for the primary (A25).
    """
    made = create_engine(
        "postgresql+psycopg://", pool_size=pool_size, max_overflow=0, pool_timeout=pool_timeout, pool_pre_ping=True
    )
    return _connecting(made, url, application_name, limits)


def make_single_connection_engine(url: str, *, application_name: str, limits: Limits = NONE) -> Engine:
    """An engine whose every connection is new and of its own: for sessions that hold state, such as the runner lock."""
    made = create_engine("postgresql+psycopg://", poolclass=NullPool)
    return _connecting(made, url, application_name, limits)


def _connecting(engine: Engine, url: str, application_name: str, limits: Limits) -> Engine:
    def open_session(_dialect: object, _record: object, _args: object, given: Mapping[str, Any]) -> DBAPIConnection:
        context: AdaptContext | None = given.get("context")  # the adapters SQLAlchemy's dialect has made
        return connect(url, application_name=application_name, limits=limits, context=context)  # type: ignore[return-value]

    event.listen(engine, "do_connect", open_session)
    event.listen(engine, "handle_error", _leave_a_standby)
    return engine


def _leave_a_standby(context: ExceptionContext) -> None:
    if sqlstate_of(context.original_exception) == READ_ONLY:
        context.is_disconnect = True


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))
