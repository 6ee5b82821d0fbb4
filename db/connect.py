"""Connections to PostgreSQL: one engine a process, psycopg 3 below SQLAlchemy Core."""

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url


def sqlalchemy_url(url: str) -> URL:
    """The plain `postgresql://` URL of the settings, for SQLAlchemy's psycopg 3 dialect."""
    return make_url(url).set(drivername="postgresql+psycopg")


def make_engine(url: str, *, pool_size: int = 10, application_name: str = "pin") -> Engine:
    """An engine with a bounded pool; connects on first use.

    Server-side limits keep a session from holding rows for ever when its process hangs: a statement may take 30 s, a
    transaction may stand idle for 30 s, and none waits longer than 10 s for another's row. Keepalives notice a dead
    network within half a minute.
    """
    return create_engine(
        sqlalchemy_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=True,
        connect_args=_connect_args(application_name) | {"options": _options(statement=30, idle_in_transaction=30)},
    )


def make_single_connection_engine(url: str, *, application_name: str) -> Engine:
    """An engine whose every connection is new and of its own: for sessions that hold state, such as the runner lock."""
    return create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args=_connect_args(application_name))


def _connect_args(application_name: str) -> dict[str, object]:
    return {
        "application_name": application_name,
        "connect_timeout": 5,
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }


def _options(*, statement: int, idle_in_transaction: int) -> str:
    return (
        f"-c statement_timeout={statement}s -c idle_in_transaction_session_timeout={idle_in_transaction}s"
        " -c lock_timeout=10s"
    )
