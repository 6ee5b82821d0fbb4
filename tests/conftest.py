"""What every test may ask for: a real PostgreSQL, and in it a migrated database of the test's own.

`PIN_TEST_PG_BIN=/usr/lib/postgresql/15/bin make test` runs the suite on the PostgreSQL of that folder.
"""

import itertools
import os
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from pytest_socket import socket_allow_hosts
from sqlalchemy import Engine

from db.connect import make_engine
from db.embedded.server import EmbeddedServer
from db.migrate import upgrade

_TEMPLATE = "pin_template"
_KEPT = 3  # databases of tests that are over: a server is slow to drop one that a client has just left


_LONGEST_FIRST = (
    "tests/chaos/test_chaos.py",
    "tests/chaos/test_self_check.py",
    "tests/console/test_an_outage.py",
    "tests/console/test_in_chromium.py",
    "tests/acceptance/",
    "tests/job/test_schedule.py",
    "tests/cases/",
    "tests/broker/test_workers.py",
    "tests/faults/",
)


def pytest_configure() -> None:
    """A shell starts what it puts in the background with Ctrl-C ignored, and children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what waits longest, so that no process of the suite ends it alone."""

    def place(item: pytest.Item) -> int:
        found = (at for at, start in enumerate(_LONGEST_FIRST) if item.nodeid.startswith(start))
        return next(found, len(_LONGEST_FIRST))

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    # Tests talk to this machine only, each process of the suite for itself.
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A PostgreSQL of this test process, gone with it; `server.has_pg_stat_statements` says whether that is loaded."""
    bin_dir = os.environ.get("PIN_TEST_PG_BIN")
    # Not below pytest's temporary folder, which is closed to the user that root's server runs as.
    with tempfile.TemporaryDirectory(prefix="pin-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        home = Path(folder, "postgres")
        with EmbeddedServer(home, durable=False, bin_dir=Path(bin_dir) if bin_dir else None) as running:
            yield running


@pytest.fixture(scope="session")
def _clone(server: EmbeddedServer) -> Iterator[Callable[[], str]]:
    server.create_database(_TEMPLATE)
    upgrade(server.url(_TEMPLATE))
    numbers = itertools.count(1)
    made: deque[str] = deque()
    with psycopg.connect(server.url("postgres"), autocommit=True) as admin:

        def clone() -> str:
            name = f"pin_{next(numbers)}"
            admin.execute(sql.SQL(f"CREATE DATABASE {{}} TEMPLATE {_TEMPLATE}").format(sql.Identifier(name)))
            made.append(name)
            while len(made) > _KEPT:
                statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
                admin.execute(statement.format(sql.Identifier(made.popleft())))
            return server.url(name)

        yield clone


@pytest.fixture
def database(_clone: Callable[[], str]) -> str:
    """The plain `postgresql://` URL of a database of this test's own, migrated and empty."""
    return _clone()


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """The production engine on the test's database; its pool is closed after the test."""
    made = make_engine(database)
    yield made
    made.dispose()
