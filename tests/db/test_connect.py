"""One way to connect: a session's settings are its own, and a URL means the same to all who read it (G28)."""

import ast
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from db.connect import OF_A_POOL, OF_THE_QUEUE, connect, make_engine, make_single_connection_engine
from db.embedded.server import EmbeddedServer
from db.moments import is_unreadable
from pin.config.database_url import parameters, sealed, url_fault
from tests.hostile.databases import HOSTS, DatabaseHost, prepare

OWN = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "client_encoding": "UTF8",
    "search_path": "public",
    "transaction_isolation": "read committed",
    "transaction_read_only": "off",
    "transaction_deferrable": "off",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "transform_null_equals": "off",
    "array_nulls": "on",
    "idle_session_timeout": "0",
}
_numbers = itertools.count(1)


@pytest.fixture
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url("postgres"), autocommit=True) as opened:
        yield opened


@pytest.fixture
def made(admin: psycopg.Connection, database: str) -> Iterator[Callable[[DatabaseHost], str]]:
    """`made(host)`: the URL of the test's database as that host has it; its role is gone afterwards."""
    roles: list[str] = []

    def make(host: DatabaseHost) -> str:
        roles.append(f"hostile_{os.getpid()}_{next(_numbers)}")
        return prepare(admin, database, host, roles[-1])

    yield make
    for role in roles:
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'".encode())
        admin.execute(f"DROP ROLE {role}".encode())


def settings_of(session: psycopg.Connection) -> dict[str, str]:
    asked = ", ".join(f"current_setting('{name}')" for name in OWN)
    row = session.execute(f"SELECT {asked}".encode()).fetchone()
    assert row is not None
    return dict(zip(OWN, row, strict=True))


@pytest.mark.req("G28")
@pytest.mark.case("A26", "A28")
@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_nothing_of_the_hosts_settings_shows_through(made: Callable[[DatabaseHost], str], host: DatabaseHost) -> None:
    url = made(host)
    with connect(url, application_name="pin-test", limits=OF_THE_QUEUE) as queue:
        assert settings_of(queue) == OWN
        limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        found = [queue.execute(f"SHOW {name}".encode()).fetchone() for name in limits]
        assert found == [("10s",), ("10s",), ("10s",)]
        assert queue.execute("SHOW application_name").fetchone() == ("pin-test",)
        if "work_mem" in host.query:
            assert queue.execute("SHOW work_mem").fetchone() == ("9MB",)
    for engine in (make_engine(url), make_single_connection_engine(url, application_name="pin-test")):
        with engine.begin() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            assert settings_of(driver) == OWN
            moment = connection.execute(text("SELECT timestamptz '2026-01-02 03:04:05.6Z'")).scalar_one()
            assert moment.isoformat() == "2026-01-02T03:04:05.600000+00:00"
            connection.execute(text("CREATE TEMPORARY TABLE written AS SELECT 'Ж'::text AS word"))
            assert connection.execute(text("SELECT word FROM written")).scalar_one() == "Ж"
        engine.dispose()


@pytest.mark.req("G28")
@pytest.mark.case("A30")
def test_several_hosts_are_tried_by_every_way_to_connect(database: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        parts = psycopg.conninfo.conninfo_to_dict(database)
        places = f"127.0.0.1:{closed.getsockname()[1]},127.0.0.1:{parts['port']}"
        url = f"postgresql://{parts['user']}:{parts['password']}@{places}/{parts['dbname']}?target_session_attrs=read-write"
        assert url_fault(url) is None
        with connect(url, application_name="pin-test", limits=OF_A_POOL) as session:
            assert session.execute("SELECT 1").fetchone() == (1,)
        engine = make_engine(url)
        with engine.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar_one() == 1
        engine.dispose()


@pytest.mark.req("G28")
@pytest.mark.case("A30")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u@h/d", "must start with postgresql://"),
        ("postgresql+psycopg://u@h/d", "must start with postgresql://"),
        ("postgresql://u:geheim@h/d?sslmod=require", "sslmod"),
        ("postgresql://u:ge%heim@h/d", "must read postgresql://"),
        ("postgresql://u@h1,h2,h3/d?port=1,2", "one for each host"),
        ("postgresql://u@h:99999/d", "from 1 to 65535"),
        ("postgresql://u@h1,h2/d?hostaddr=127.0.0.1", "hostaddr"),
        ("postgresql://u@h/d?target_session_attrs=standby", "every process writes"),
        ("postgresql://u@h/d?target_session_attrs=any", "every process writes"),
        ("postgresql://u@h/d?replication=database", "replication"),
    ],
)
def test_a_url_that_could_not_mean_the_same_to_all_is_refused_and_not_repeated(url: str, said: str) -> None:
    fault = url_fault(url)
    assert fault is not None
    assert said in fault
    assert "heim" not in fault
    with pytest.raises(ValueError, match="the database's URL"):
        parameters(url, "pin-test")


@pytest.mark.req("G28")
@pytest.mark.case("A35")
def test_the_shell_fills_only_what_the_url_leaves_open(monkeypatch: pytest.MonkeyPatch, server: EmbeddedServer) -> None:
    hostile = {
        "PGSSLMODE": "require",
        "PGHOSTADDR": "127.0.0.2",
        "PGSERVICE": "nowhere",
        "PGOPTIONS": "-c no_such_setting=1 -c nonsense",
        "PGTARGETSESSIONATTRS": "standby",
        "PGCHANNELBINDING": "require",
        "PGSSLNEGOTIATION": "direct",
        "PGREQUIREAUTH": "none",
        "PGSSLCERTMODE": "require",
        "PGMINPROTOCOLVERSION": "9.9",
        "PGMAXPROTOCOLVERSION": "9.9",
        "PGSSLMAXPROTOCOLVERSION": "nonsense",
        "PGLOADBALANCEHOSTS": "nonsense",
        "PGREQUIREPEER": "nobody",
        "PGPORT": "9",
        "PGUSER": "nobody",
        "PGCLIENTENCODING": "LATIN1",
        "PGTZ": "Asia/Tokyo",
        "PGDATESTYLE": "German",
        "PGAPPNAME": "somebody",
    }
    plain = server.url("postgres")
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    assert "sslmode" in sealed(plain)
    with connect(server.url("postgres"), application_name="pin-test", limits=OF_A_POOL) as session:
        assert settings_of(session) == OWN
        assert session.execute("SHOW application_name").fetchone() == ("pin-test",)
    # Where a person's URL is silent, the shell speaks: this server has no TLS, so PGSSLMODE shows.
    for name in hostile.keys() - {"PGSSLMODE"}:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        connect(plain, application_name="pin-test", limits=OF_A_POOL)
    connect(f"{plain}?sslmode=disable", application_name="pin-test", limits=OF_A_POOL).close()


@pytest.mark.req("G28")
def test_no_other_module_makes_a_connection() -> None:
    root = Path(__file__).parents[2]
    files = [
        *(path for room in ("pin", "db", "web", "actors") for path in (root / room).rglob("*.py")),
        root / "scheduler.py",
    ]
    found = {
        f"{path.relative_to(root)}: {ast.unparse(node.func)}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"psycopg.connect", "psycopg.Connection.connect", "create_engine", "make_url"}
    }
    assert found == {"db/connect.py: psycopg.connect", "db/connect.py: create_engine"}


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "294276-01-01 00:00:00+00", "4000-01-01 00:00:00+00 BC"])
def test_a_moment_that_python_cannot_hold_raises_nothing_and_is_known(database: str, moment: str) -> None:
    engine = make_engine(database)
    with engine.connect() as connection:
        asked = text("SELECT CAST(:moment AS timestamptz), timestamptz '2026-01-01 00:00:00Z'")
        odd, good = connection.execute(asked, {"moment": moment}).one()
    engine.dispose()
    assert (is_unreadable(odd), is_unreadable(good)) == (True, False)
    assert (odd > good) is (not moment.startswith("-") and not moment.endswith("BC"))
