"""What we need of a database: asked of it by migrations, `pin doctor`, starts and probes (G29, A27)."""

from collections.abc import Collection
from enum import StrEnum

from sqlalchemy import Connection, text

from db.connect import OF_A_CHECK, make_single_connection_engine

OLDEST = 15
"""The first major version that this project is tested on."""


class UnfitDatabaseError(Exception):
    """The database cannot serve this project; the message is one line and says what to do."""


class Work(StrEnum):
    """What a process writes: its probe tries just that."""

    NEWS = "news"
    SELECTIONS = "selections"
    QUEUE = "queue"


_ABOUT = text("""
    SELECT current_setting('server_version_num')::int / 10000 AS version, pg_is_in_recovery() AS standby,
        pg_encoding_to_char(encoding) AS encoding
    FROM pg_database WHERE datname = current_database()
""")

# The server checks rights, read-only and the columns before it looks for rows. There are none, so nothing is written.
_TRIED = {
    Work.NEWS: text("UPDATE news.snapshot_detach_outbox SET version = version WHERE false"),
    Work.SELECTIONS: text("UPDATE selections.snapshot SET status = status WHERE false"),
    Work.QUEUE: text(
        "INSERT INTO dramatiq.queue (message_id, queue_name, state, mtime, message)"
        " SELECT message_id, queue_name, state, mtime, message FROM dramatiq.queue WHERE false"
    ),
}


def unfitness(connection: Connection) -> str | None:
    """Why the database cannot serve us, in one line that says what to do; None when it can."""
    row = connection.execute(_ABOUT).one()
    if row.version < OLDEST:
        return f"PostgreSQL {row.version} is too old: upgrade the server to {OLDEST} or newer"
    if row.encoding != "UTF8":
        return (
            f"the database's encoding is {row.encoding}, it must be UTF8:"
            " create one with CREATE DATABASE pin ENCODING 'UTF8' TEMPLATE template0"
        )
    if row.standby:
        return "the server is a standby and takes no writes: point PIN_DATABASE_URL at the primary, or name all hosts"
    return None


def refuse_unfit(connection: Connection) -> None:
    """Raise UnfitDatabaseError for what `unfitness` says."""
    if says := unfitness(connection):
        raise UnfitDatabaseError(says)


def refuse_unfit_at(url: str) -> None:
    """`refuse_unfit` over a session of its own. Raises sqlalchemy.exc.OperationalError when none is to be had."""
    engine = make_single_connection_engine(url, application_name="pin-contract-check", limits=OF_A_CHECK)
    with engine.connect() as connection:
        refuse_unfit(connection)


def try_work(connection: Connection, works: Collection[Work]) -> None:
    """Try each work's write, with no row to write; the caller rolls back. Raises what the write would raise."""
    for work in works:
        connection.execute(_TRIED[work])
