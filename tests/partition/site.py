"""The stack spread over the hosts of a network, under a light load of writes, and the harness's view of it."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from db.embedded.server import EmbeddedServer
from db.migrate import upgrade
from pin.clock import new_id
from pin.demo.api import Api
from pin.stack.child import ChildSpec
from pin.stack.journal import Journal
from pin.stack.local import LocalKeys, ensure_keys
from tests.chaos import witness
from tests.chaos.breaking import NAMES, sabotage
from tests.chaos.fleet import Fleet
from tests.chaos.stack import plan, server_of, user_token
from tests.chaos.writers import Writers
from tests.partition.network import Network

DATABASE = "database"
NEWS, SELECTIONS = "news", "selections"
WORKERS = ("worker-1", "worker-2")
SCHEDULERS = ("scheduler-1", "scheduler-2")
HOSTS = (DATABASE, SELECTIONS, NEWS, *WORKERS, *SCHEDULERS)

_PORTS = (8000, 8001)
_LIFETIME = timedelta(hours=3)


@dataclass
class Site:
    """What a scenario plays with. `away` is noted by whoever takes a worker away."""

    network: Network
    fleet: Fleet
    specs: dict[str, ChildSpec]
    keys: LocalKeys
    home: Path
    look: psycopg.Connection[Any]
    writers: Writers
    news: Api
    url: str
    away: list[tuple[str, datetime, datetime]] = field(default_factory=list)

    def ask(self, statement: str, *values: Any) -> Any:
        """The first column of the first row, None without one."""
        row = self.look.execute(statement.encode(), values).fetchone()
        return row[0] if row else None

    @contextmanager
    def without(self, worker: str) -> Iterator[None]:
        """The worker is away meanwhile, whatever the block does to it."""
        began = datetime.now(tz=UTC)
        try:
            yield
        finally:
            self.away.append((worker, began, datetime.now(tz=UTC)))

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """The process is stopped meanwhile."""
        with self.without(name):
            self.fleet.freeze(name)
            try:
                yield
            finally:
                self.fleet.thaw(name)

    @contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        """No packet passes between the two meanwhile."""
        self.network.cut(one, other)
        try:
            yield
        finally:
            self.network.mend(one, other)

    @contextmanager
    def unplugged(self, host: str) -> Iterator[None]:
        """No packet passes to the host or from it meanwhile."""
        self.network.down(host)
        try:
            yield
        finally:
            self.network.up(host)


@contextmanager
def site(network: Network, home: Path, log: Path, breakages: Sequence[str] = ()) -> Iterator[Site]:
    """Everything up and ready, every process on its own host, broken so. Main thread only."""
    with network.inside(DATABASE):
        server = server_of(home, {"listen_addresses": "*"}, port=5432)
        server.start()
    try:
        with network.inside(DATABASE):
            _admit(server)
            server.create_database("pin")
            upgrade(server.url())
        url = server.url().replace("127.0.0.1", network.address(DATABASE))
        keys = ensure_keys(home)
        extra = {**sabotage(), NAMES: ",".join(breakages)} if breakages else {}
        specs = {spec.name: _placed(spec, network) for spec in plan(home, keys, url, _PORTS, extra)}
        with (
            psycopg.connect(url, autocommit=True, application_name="pin-faults-look") as look,
            log.open("w", encoding="utf-8") as lines,
        ):
            witness.watch(look)
            fleet = Fleet(list(specs.values()), Journal(lines), home, network.inside)
            try:
                fleet.start_all()
                token = user_token(keys, new_id(), new_id(), _LIFETIME)
                apis = [Api(_base(specs[name]), token) for name in (NEWS, SELECTIONS)]
                writers = Writers(apis[0], apis[1], authors=3, seed=1)
                writers.make_selections()
                writers.start()
                try:
                    yield Site(network, fleet, specs, keys, home, look, writers, apis[0], url)
                finally:
                    writers.stop()
            finally:
                fleet.stop_all()
    finally:
        server.stop()


def _admit(server: EmbeddedServer) -> None:
    """Clients of the hosts' network, with the password."""
    with (server.home / "cluster" / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 10.77.0.0/24 scram-sha-256\n")
    os.kill(server.pid, signal.SIGHUP)


def _placed(spec: ChildSpec, network: Network) -> ChildSpec:
    """The process as its host runs it."""
    own = {"PIN_SELECTIONS_URL": f"http://{network.address(SELECTIONS)}:{_PORTS[1]}"}
    if spec.ready_url is None:
        return replace(spec, environment={**spec.environment, **own})
    port = urlsplit(spec.ready_url).port
    address = network.address(spec.name)
    own["PIN_WEB__HOST"] = address
    return replace(spec, environment={**spec.environment, **own}, ready_url=f"http://{address}:{port}/health/ready")


def _base(spec: ChildSpec) -> str:
    return (spec.ready_url or "").removesuffix("/health/ready")
