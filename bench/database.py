"""The databases of the bench: one server with fsync on, a fresh database a run, and what a run cost it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from dramatiq_pg.schema import generate_init_sql
from psycopg import sql

from db.embedded.server import EmbeddedServer
from db.migrate import upgrade

ROLE = "bench"
"""The systems measured connect as this role, so that the bench's own statements are not counted as theirs."""

_PASSWORD = "bench"  # noqa: S105 - of a server on loopback that lives as long as the bench
_MIGRATED, _STOCK = "pin_template", "dramatiq_template"
_CONTROL = ("begin", "commit", "rollback", "start transaction", "savepoint", "release")

Session = psycopg.Connection[tuple[Any, ...]]

_STATEMENTS = """
    SELECT query, sum(calls)::bigint FROM pg_stat_statements
    WHERE userid = %s::regrole AND dbid = (SELECT oid FROM pg_database WHERE datname = %s)
    GROUP BY query
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """What was done on the server's side between two moments."""

    statements: int
    transaction_control: int
    wal_bytes: int


class Databases:
    """Fresh databases of a running server, cloned from the product's schema or from dramatiq-pg's own."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._admin = psycopg.connect(server.url("postgres"), autocommit=True)
        self._made = 0
        self._admin.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        self._admin.execute(sql.SQL("CREATE ROLE bench LOGIN PASSWORD {}").format(_PASSWORD))
        for template in (_MIGRATED, _STOCK):
            self._create(template)
        upgrade(self._url_of_role(_MIGRATED))
        with psycopg.connect(self._url_of_role(_STOCK)) as connection:
            connection.execute(generate_init_sql().encode())

    def durability(self) -> str:
        """The settings that make a commit cost what it costs in production."""
        names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
        values = [self._admin.execute(sql.SQL("SHOW {}").format(sql.Identifier(name))).fetchone() for name in names]
        return ", ".join(f"{name} {value[0]}" for name, value in zip(names, values, strict=True) if value)

    @contextmanager
    def fresh(self, *, stock: bool = False) -> Iterator["FreshDatabase"]:
        """A database for one run, dropped afterwards."""
        self._made += 1
        name = f"bench_{self._made}"
        self._create(name, _STOCK if stock else _MIGRATED)
        with psycopg.connect(self._server.url(name), autocommit=True) as connection:
            yield FreshDatabase(self._url_of_role(name), connection, self._admin, self._server.pid)
        self._admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        """Close the bench's own connection."""
        self._admin.close()

    def _create(self, name: str, template: str = "template1") -> None:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER bench")
        self._admin.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))

    def _url_of_role(self, name: str) -> str:
        return f"postgresql://{ROLE}:{_PASSWORD}@127.0.0.1:{self._server.port}/{name}"


@dataclass(frozen=True, slots=True)
class FreshDatabase:
    """One run's database: `url` is for the system measured, `connection` and `admin` are the bench's own."""

    url: str
    connection: Session
    admin: Session
    postgres_pid: int

    def number(self, query: str) -> int:
        """The one number that a query of the bench answers."""
        row = self.connection.execute(query.encode()).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def costing(self) -> Iterator[list[Cost]]:
        """Fills the list with what the block cost. A checkpoint goes before: full-page images are in the figure."""
        cost: list[Cost] = []
        self.connection.execute("VACUUM ANALYZE")
        self.connection.execute("CHECKPOINT")
        self.admin.execute("SELECT pg_stat_statements_reset()")
        before = self._wal_position()
        yield cost
        wal_bytes = self._wal_position() - before
        rows = self.admin.execute(_STATEMENTS, (ROLE, self.connection.info.dbname)).fetchall()
        calls = {str(query): int(count) for query, count in rows}
        control = sum(count for query, count in calls.items() if query.lower().lstrip().startswith(_CONTROL))
        cost.append(Cost(sum(calls.values()) - control, control, wal_bytes))

    def _wal_position(self) -> int:
        row = self.admin.execute("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").fetchone()
        return int(row[0]) if row else 0
