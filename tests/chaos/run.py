"""A run from first to last: the stack, the load, the faults, quiet, and then what must hold."""

import collections
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from db.connect import make_engine
from db.embedded.server import EmbeddedServer
from db.migrate import upgrade
from db.outbox.intents import Intent, stage
from pin.clock import new_id, utc_now
from pin.demo.api import Api
from pin.operations.quarantine import list_quarantined, requeue
from pin.rules.contract import Reason
from pin.stack.journal import Journal
from pin.stack.local import ensure_keys
from pin.stack.ports import free_ports
from tests.chaos import witness
from tests.chaos.breaking import NAMES, sabotage
from tests.chaos.director import Director
from tests.chaos.fleet import Fleet
from tests.chaos.gateway import Gateway
from tests.chaos.judging import Verdict, judge
from tests.chaos.schedule import Fault
from tests.chaos.stack import by_way_of, plan, server_of, user_token
from tests.chaos.writers import Ledger, Writers

AUTHORS = 4
_IDLE_LIMIT = 0.7  # seconds in an open transaction; a call that hangs takes 1.0
_IMPOSSIBLE_EVERY = 4.0

Say = Callable[[str], None]


@dataclass
class Report:
    """What came of a run."""

    faults: collections.Counter[str]
    mended: collections.Counter[str]
    met: collections.Counter[Any]
    ledger: Ledger
    operator: collections.Counter[str]
    verdict: Verdict


def run(faults: Iterable[Fault], *, seconds: float, seed: int, breakages: Sequence[str] = (), say: Say) -> Report:
    """Start everything, let the faults happen for so long, then quiet. Main thread only.

    Raises FleetError, EmbeddedServerError when the stack does not start. The processes' log is kept, and its place
    said, when something is violated.
    """
    with _home() as home, (home / "chaos.log").open("w", encoding="utf-8") as lines, ExitStack() as stack:
        server = stack.enter_context(server_of(home))
        server.create_database("pin")
        upgrade(server.url())
        with psycopg.connect(server.url(), autocommit=True) as connection:
            witness.watch(connection)
        keys = ensure_keys(home)
        ports = free_ports("127.0.0.1", 2)
        gateway = stack.enter_context(Gateway(ports[1]))
        extra = {**sabotage(), NAMES: ",".join(breakages)} if breakages else {}
        planned = by_way_of(gateway.url, plan(home, keys, server.url(), (ports[0], ports[1]), extra))
        fleet = Fleet(planned, Journal(lines), home)
        stack.callback(fleet.stop_all)
        fleet.start_all()
        token = user_token(keys, new_id(), new_id(), timedelta(seconds=seconds + 900))
        news, selections = (Api(f"http://127.0.0.1:{port}", token) for port in ports)
        writers = Writers(news, selections, authors=AUTHORS, seed=seed)
        writers.make_selections()
        director = Director(fleet, server, gateway, say)
        with _operator(server) as operator, _watcher(server, director) as idle:
            writers.start()
            director.play(faults, seconds)
            writers.stop()
        director.all_well()
        say("        quiet")
        verdict = judge(server.url(), director.away, writers.ledger, home / "chaos.log", gateway.detached)
        verdict.violations += sorted(idle)
        report = Report(director.done, director.mended, gateway.hit, writers.ledger, operator, verdict)
        if verdict.violations and not breakages:
            say(f"        what the processes said: {_keep(home / 'chaos.log')}")
        return report


@contextmanager
def _operator(server: EmbeddedServer) -> Iterator[collections.Counter[str]]:
    """Now and then an intent that can never succeed; and what is quarantined for other causes is re-enqueued."""
    engine = make_engine(server.url(), pool_size=1, application_name="pin-faults-operator")
    done: collections.Counter[str] = collections.Counter()
    hopeless: set[UUID] = set()
    with _repeating(lambda: _operate(engine, done, hopeless), _IMPOSSIBLE_EVERY):
        yield done
    engine.dispose()


def _operate(engine: Engine, done: collections.Counter[str], hopeless: set[UUID]) -> None:
    with contextlib.suppress(DBAPIError):
        now = utc_now()
        with engine.begin() as connection:
            stage(connection, [Intent(new_id(), new_id(), new_id(), Reason.POST_DELETED, new_id(), now)], now)
        done["impossible intents"] += 1
        # What can never succeed is tried again once, the rest each time.
        ids = [one.entry.id for one in list_quarantined(engine) if one.entry.id not in hopeless]
        hopeless.update(one.entry.id for one in list_quarantined(engine) if "NOT_FOUND" in (one.last_error or ""))
        if ids:
            requeue(engine, ids, actor="chaos", reason="tried again", now=now)
            done["re-enqueued"] += len(ids)


@contextmanager
def _watcher(server: EmbeddedServer, director: Director) -> Iterator[set[str]]:
    """Looks for sessions that sit in a transaction as long as a call takes (I5)."""
    found: set[str] = set()
    sessions: list[psycopg.Connection[Any]] = []

    def look() -> None:
        if time.monotonic() < director.frozen_until:
            return
        try:
            if not sessions:
                name = "pin-faults-watcher"
                sessions.append(psycopg.connect(server.url(), autocommit=True, application_name=name))
            seen = witness.idle_in_transaction(sessions[0], _IDLE_LIMIT)
        except psycopg.Error:  # the database is away
            while sessions:
                sessions.pop().close()
            return
        if time.monotonic() > director.frozen_until:
            found.update(seen)

    with _repeating(look, 0.05):
        yield found
    while sessions:
        sessions.pop().close()


@contextmanager
def _repeating(work: Callable[[], None], every: float) -> Iterator[None]:
    """`work` in a thread of its own, until the block ends. Raises what it raised."""
    over = threading.Event()
    broken: list[BaseException] = []

    def loop() -> None:
        try:
            while not over.wait(every):
                work()
        except BaseException as error:  # noqa: BLE001 - told at the block's end
            broken.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    if broken:
        raise broken[0]


@contextmanager
def _home() -> Iterator[Path]:
    """A folder of the run's own, which root's PostgreSQL may enter; gone after it."""
    home = Path(tempfile.mkdtemp(prefix="pin-chaos-"))
    home.chmod(0o711)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _keep(log: Path) -> Path:
    descriptor, kept = tempfile.mkstemp(prefix="pin-chaos-", suffix=".log")
    os.close(descriptor)
    shutil.copyfile(log, kept)
    return Path(kept)
