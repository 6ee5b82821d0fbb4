"""The database itself, as operators need to see it: version, schema, sessions, sizes, what is open longest."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of one application in one state."""

    application: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table with its indexes, in bytes; row counts are the server's estimates."""

    table: str
    bytes: int
    rows: int
    dead_rows: int


@dataclass(frozen=True, slots=True)
class OldTransaction:
    """The transaction open longest: it holds back vacuum, and perhaps others."""

    pid: int
    application: str
    state: str
    seconds: float


_SESSIONS = text("""
    SELECT coalesce(nullif(application_name, ''), '(none)') AS application, coalesce(state, '(none)') AS state,
        count(*) AS count
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    GROUP BY 1, 2 ORDER BY 1, 2
""")

_TABLES = text("""
    SELECT schemaname || '.' || relname AS table, pg_total_relation_size(relid) AS bytes, n_live_tup AS rows,
        n_dead_tup AS dead_rows
    FROM pg_stat_user_tables WHERE schemaname IN ('news', 'selections', 'dramatiq') ORDER BY bytes DESC, 1
""")

_OLDEST = text("""
    SELECT pid, coalesce(nullif(application_name, ''), '(none)') AS application, coalesce(state, '(none)') AS state,
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    ORDER BY xact_start LIMIT 1
""")


def version(connection: Connection) -> str:
    """PostgreSQL's version, such as `18.6`."""
    return str(connection.execute(text("SHOW server_version")).scalar_one())


def clock(connection: Connection) -> datetime:
    """The server's clock, for comparing it with ours (G11)."""
    found: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return found


def sessions(connection: Connection) -> list[Sessions]:
    """The sessions of this database, by application and state, this one left out."""
    return [Sessions(*row) for row in connection.execute(_SESSIONS)]


def table_sizes(connection: Connection) -> list[TableSize]:
    """The product's tables, the largest first."""
    return [TableSize(*row) for row in connection.execute(_TABLES)]


def oldest_transaction(connection: Connection) -> OldTransaction | None:
    """The transaction of another session that is open longest, None when none is."""
    row = connection.execute(_OLDEST).one_or_none()
    return OldTransaction(*row) if row else None
