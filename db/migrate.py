"""The one way to make a database: alembic's migrations, forward only.

alembic is imported by what needs it: every process asks here whether it is ready, few migrate.
"""

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from db.connect import make_single_connection_engine
from db.contract import Work, refuse_unfit, try_work, unfitness
from db.errors import describe, is_away

if TYPE_CHECKING:
    from alembic.config import Config

LOCK_TIMEOUT = "5s"
"""A migration that cannot get its lock gives up instead of queueing all traffic behind itself."""

_MIGRATION_LOCK = 7_046_001  # serialises migrators; the one-bigint key space is otherwise unused


def _config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config()
    # alembic reads its options as templates, in which % begins a name (A33).
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """The newest revision this code knows."""
    from alembic.script import ScriptDirectory

    return str(ScriptDirectory.from_config(_config()).get_current_head())


def current(connection: Connection) -> str | None:
    """The revision the database is at, None for an empty one."""
    from alembic.migration import MigrationContext

    return MigrationContext.configure(
        connection, opts={"version_table": "schema_version", "version_table_schema": "public"}
    ).get_current_revision()


def not_ready(engine: Engine, works: Collection[Work] = tuple(Work)) -> str | None:
    """Why a process that does `works` should not be given any now; None when it could do it (G29).

    Tries the writes and rolls them back. A newer schema counts as ready, since during a rolling deploy the migration
    runs before the last old process goes.
    """
    try:
        with engine.connect() as connection:
            if says := unfitness(connection):
                return says
            revision = current(connection)
            if revision is None or revision < _head():
                return "the database's schema is older than this code"
            try_work(connection, works)
    except SQLAlchemyError as error:
        # What cannot be reached names hosts and ports, which are nobody's business who asks a probe.
        return "the database does not answer" if is_away(error) else describe(error)
    return None


@cache
def _head() -> str:
    return head()


def upgrade(url: str) -> tuple[str | None, str]:
    """Bring the database at `url` to `head()`; answers (revision before, revision after).

    Several at once take turns. Raises db.contract.UnfitDatabaseError for a database that cannot serve (A27),
    sqlalchemy.exc.OperationalError when a lock is not had within LOCK_TIMEOUT.
    """
    from alembic import command

    engine = make_single_connection_engine(url, application_name="pin-migrate")
    with engine.connect() as connection:
        refuse_unfit(connection)
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
        connection.execute(text(f"SET lock_timeout = '{LOCK_TIMEOUT}'"))
        before = current(connection)
        connection.commit()
        command.upgrade(_config(connection), "head")
        after = current(connection)
        connection.commit()
    engine.dispose()
    return before, str(after)
