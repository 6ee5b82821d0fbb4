"""What a database must be, and what ready means: red while the work cannot be done, green again by itself (G29)."""

import subprocess
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest
from sqlalchemy import Engine, text

from db.connect import make_engine
from db.contract import UnfitDatabaseError, Work, refuse_unfit_at
from db.embedded.server import EmbeddedServer
from db.errors import Meaning, meaning_of
from db.migrate import not_ready, upgrade
from tests.acceptance.processes import PIN
from tests.serving import MakeSettings, app_settings, keys, serve, serving
from web.app import assemble, create_app
from web.deps import build_deps

__all__ = ["app_settings", "keys", "serve"]


@pytest.fixture
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url("postgres"), autocommit=True) as opened:
        yield opened


@pytest.mark.req("G29")
@pytest.mark.case("A27")
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused_in_one_line(
    server: EmbeddedServer, admin: psycopg.Connection, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"of_{encoding.lower()}"
    admin.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0".encode())
    url = server.url(name)
    with pytest.raises(UnfitDatabaseError, match=f"encoding is {encoding}, it must be UTF8"):
        upgrade(url)
    with pytest.raises(UnfitDatabaseError, match="CREATE DATABASE"):
        refuse_unfit_at(url)
    engine = make_engine(url)
    assert encoding in str(not_ready(engine))
    engine.dispose()
    monkeypatch.setenv("PIN_DATABASE_URL", url)
    told = subprocess.run([*PIN, "migrate"], capture_output=True, text=True, check=False)
    assert (told.returncode, len(told.stderr.strip().splitlines())) == (69, 1)
    assert encoding in told.stderr
    assert encoding in subprocess.run([*PIN, "doctor"], capture_output=True, text=True, check=False).stdout


@pytest.fixture
def limited(admin: psycopg.Connection, database: str) -> Iterator[str]:
    """A URL of a role that may read everything and write nothing."""
    parts = psycopg.conninfo.conninfo_to_dict(database)
    role = f"reader_{parts['dbname']}"
    admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'given' IN ROLE pg_read_all_data".encode())
    yield f"postgresql://{role}:given@{parts['host']}:{parts['port']}/{parts['dbname']}"
    admin.execute(f"DROP ROLE {role}".encode())


@pytest.mark.req("G29", "G30")
@pytest.mark.case("A25")
def test_ready_tries_the_write_and_says_which_right_is_missing(
    engine: Engine, limited: str, app_settings: MakeSettings
) -> None:
    refused = make_engine(limited)
    for work, table in ((Work.NEWS, "snapshot_detach_outbox"), (Work.SELECTIONS, "snapshot"), (Work.QUEUE, "queue")):
        assert not_ready(engine, [work]) is None
        assert f"permission denied for table {table}" in str(not_ready(refused, [work]))
    refused.dispose()
    with serving(create_app(app_settings(limited))) as url, httpx.Client(base_url=url, trust_env=False) as client:
        ready = client.get("/health/ready")
        assert (ready.status_code, "permission denied" in ready.text) == (503, True)


@pytest.mark.req("G29")
@pytest.mark.case("A25")
def test_probes_cost_no_transaction_of_others_and_write_nothing(engine: Engine) -> None:
    def standing() -> int:
        with engine.connect() as connection:
            found: int = connection.execute(
                text("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int")
            ).scalar_one()
            return found

    assert not_ready(engine) is None
    before = standing()
    assert not_ready(engine) is None
    assert standing() == before, "no transaction id was used"


@pytest.mark.req("G29")
def test_a_probe_is_answered_while_every_connection_is_taken(
    database: str, app_settings: MakeSettings, serve: Callable[..., str]
) -> None:
    deps = build_deps(app_settings(database))
    url = serve(assemble(deps))
    taken = [deps.engine.connect() for _ in range(deps.engine.pool.size())]  # type: ignore[attr-defined]
    try:
        assert httpx.get(f"{url}/health/ready", trust_env=False, timeout=5).status_code == 200
    finally:
        for connection in taken:
            connection.close()


@pytest.mark.req("G28", "G30")
@pytest.mark.case("A25")
def test_a_session_that_meets_a_read_only_server_is_not_used_again(engine: Engine) -> None:
    pid = text("SELECT pg_backend_pid()")
    with engine.connect() as connection:
        first = connection.execute(pid).scalar_one()
        with pytest.raises(Exception, match="read-only") as met:
            connection.exec_driver_sql("SET TRANSACTION READ ONLY; CREATE TABLE t ()")
        assert meaning_of(met.value) is Meaning.REFUSED
    with engine.connect() as connection:
        assert connection.execute(pid).scalar_one() != first
