"""The runner's advisory lock, with a TTL that the server enforces (J2, J3, G5).

The lock lives on a connection of its own. `idle_session_timeout` and its in-transaction siblings are LockTtl there, so
that the server ends a holder that hangs, also one whose host is gone. That connection never reconnects, pings ahead or
retries: whoever has lost it has lost the lock, and a claim on it fails (A12, A13).
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from db.connect import make_single_connection_engine
from pin.clock import new_id

LOCK_NAME = "Pin:lock:job:scheduled:news-snapshot-detach-retry"


class LockLostError(Exception):
    """The lock's connection is gone, and the lock with it."""


class PoolerError(Exception):
    """The database is reached through a pooler that gives one session to several clients: no lock is safe (A12)."""


def lock_key(name: str = LOCK_NAME) -> tuple[int, int]:
    """The two signed 32-bit halves of the key, stable over processes and hosts.

    The two-int form has a key space of its own, apart from the one-bigint form that libraries use.
    """
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True), int.from_bytes(digest[4:8], "big", signed=True)


class RunnerLock:
    """A lock that is held, and the one connection it lives on."""

    def __init__(self, connection: Connection, backend_pid: int) -> None:
        self._connection = connection
        self.backend_pid = backend_pid

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction on the lock's own connection: it commits only if the lock was held to its end.

        Raises LockLostError when the connection is gone, whatever error the driver gave for it.
        """
        if self._connection.closed or self._connection.invalidated:
            raise LockLostError
        try:
            with self._connection.begin():
                yield self._connection
        except DBAPIError as error:
            if error.connection_invalidated or self._connection.invalidated:
                raise LockLostError from error
            raise

    def wait(self, timeout: float) -> None:
        """Wait for a notification on a channel this session listens to, at most `timeout` seconds.

        Raises LockLostError when the connection is gone.
        """
        driver = self._driver()
        try:
            for _ in driver.notifies(timeout=timeout, stop_after=1):
                return
        except psycopg.OperationalError as error:
            self._connection.invalidate()
            raise LockLostError from error

    def listen(self, channel: str) -> None:
        """Be notified of `channel` (an identifier of the project's own)."""
        with self.transaction() as connection:
            connection.execute(text(f'LISTEN "{channel}"'))

    def _driver(self) -> "psycopg.Connection[object]":
        if self._connection.closed or self._connection.invalidated:
            raise LockLostError
        driver = self._connection.connection.driver_connection
        if not isinstance(driver, psycopg.Connection):
            raise TypeError("the runner lock needs psycopg 3")
        return driver

    def _release(self) -> None:
        """Give the lock back; whatever happens, the session ends and the server frees what it held."""
        try:
            with self.transaction() as connection:
                first, second = lock_key()
                connection.execute(
                    text("SELECT pg_advisory_unlock(:first, :second)"), {"first": first, "second": second}
                )
        except (LockLostError, DBAPIError):
            pass  # the session is gone or going: the lock goes with it
        finally:
            self._connection.invalidate()
            self._connection.close()


@contextmanager
def runner_lock(url: str, ttl: timedelta) -> Iterator[RunnerLock | None]:
    """Try to take the lock, without waiting; yields None when it is held elsewhere (J2).

    `url` must reach PostgreSQL directly or through a session-mode pooler. Raises sqlalchemy.exc.OperationalError when
    the database cannot be reached.
    """
    engine = make_single_connection_engine(url, application_name="pin-runner-lock")
    try:
        connection = engine.connect()
        lock = _try_lock(connection, ttl)
        if lock is None:
            connection.close()
            yield None
            return
        try:
            yield lock
        finally:
            lock._release()  # noqa: SLF001 - only this block may give the lock back
    finally:
        engine.dispose()


def _try_lock(connection: Connection, ttl: timedelta) -> RunnerLock | None:
    milliseconds = max(1, int(ttl.total_seconds() * 1000))
    first, second = lock_key()
    with connection.begin():
        version = connection.execute(text("SELECT current_setting('server_version_num')::int")).scalar_one()
        limits = ["idle_session_timeout", "idle_in_transaction_session_timeout", "statement_timeout"]
        if version >= 170000:  # noqa: PLR2004 - the release that brought transaction_timeout
            limits.append("transaction_timeout")
        for limit in limits:
            connection.execute(
                text("SELECT set_config(:name, :value, false)"), {"name": limit, "value": str(milliseconds)}
            )
        row = connection.execute(
            text("SELECT pg_try_advisory_lock(:first, :second) AS held, pg_backend_pid() AS pid"),
            {"first": first, "second": second},
        ).one()
    return RunnerLock(connection, row.pid) if row.held else None


def refuse_transaction_pooler(url: str) -> None:
    """Raise PoolerError unless two connections are two sessions; checked once, at the scheduler's start (A12)."""
    engine: Engine = make_single_connection_engine(url, application_name="pin-pooler-check")
    take = text("SELECT pg_try_advisory_lock(:first, :second)")
    first, second = lock_key(f"Pin:probe:pooler:{new_id()}")  # nobody else probes this key
    try:
        with engine.connect() as one, engine.connect() as other:
            held = one.execute(take, {"first": first, "second": second}).scalar_one()
            one.commit()
            other_held = other.execute(take, {"first": first, "second": second}).scalar_one()
            other.commit()
            same = (
                one.execute(text("SELECT pg_backend_pid()")).scalar_one()
                == other.execute(text("SELECT pg_backend_pid()")).scalar_one()
            )
            if same or (held and other_held):
                raise PoolerError(
                    "the database is reached through a transaction-mode pooler: advisory locks are not safe there;"
                    " give the scheduler a direct connection"
                )
            one.invalidate()
            other.invalidate()
    finally:
        engine.dispose()
