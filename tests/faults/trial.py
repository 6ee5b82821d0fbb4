"""One point: a process is held at a border of its path, and ended there or let go much later; then all recovers."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg

from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient
from pin.rules.contract import Reason
from pin.rules.outbox import Reply
from tests.faults.hook import SENT
from tests.faults.invariants import open_transactions, violations
from tests.faults.orders import NEVER
from tests.faults.paths import settings_of
from tests.faults.recovery import Recovery
from tests.faults.site import Child, Site
from tests.waiting import eventually

_PATIENCE = 60.0

_KINDS = {
    "requeue": {"sql before", "sql after", "commit before", "commit after"},
    "detach endpoint": {"sql before", "sql after", "commit before", "commit after"},
    "tick": {"sql before", "sql after", "commit before", "commit after"},
}
_ALL_KINDS = {"sql before", "sql after", "commit before", "commit after", "http before", SENT, "http reply"}


class Fault(Enum):
    """What happens to the process at its border."""

    KILLED = "killed"
    FROZEN = "frozen"
    """It goes on after everything else has come to rest, as a process does that the machine had stopped for long."""


@dataclass
class Trial:
    """What came of a point. `completed`: the path ended before it reached the border."""

    path: str
    number: int
    border: str = ""
    completed: bool = False
    crossed: int = 0
    said: str = ""
    in_transaction: bool = False
    violations: list[str] = field(default_factory=list)


def attempt(site: Site, path: str, number: int, fault: Fault, *, named: str = "", breakage: str | None = None) -> Trial:
    """Try one point: border `number` of those whose names start with `named`. NEVER lets the path complete.

    A process that cannot be frozen there, for it holds a transaction open that the server would end, is killed.
    """
    trial = Trial(path, number)
    child, database = site.start(path, number, named=named, breakage=breakage)
    try:
        with psycopg.connect(database, autocommit=True, application_name="pin-faults-look") as look:
            _Point(site, trial, child, look).play(fault)
            trial.violations += violations(look)
    finally:
        child.close()
    return trial


class _Point:
    def __init__(self, site: Site, trial: Trial, child: Child, look: psycopg.Connection[Any]) -> None:
        self.site, self.trial, self.child, self.look = site, trial, child, look
        self.edge = site.edge
        settings = settings_of(site.keys, str(look.info.dsn), site.selections_url)
        self.settings = settings.model_copy(update={"database_url": site.server.url(look.info.dbname)})
        self.recovery = Recovery(self.settings, look)
        self.calls: Future[None] | None = None
        self.ticks = trial.path == "tick"

    def play(self, fault: Fault) -> None:
        with ExitStack() as stack:
            if self.ticks:
                stack.enter_context(self.recovery.working())
            said = self._until("at", "done", "failed")
            if "at" in said:
                self._fault(fault, said)
            else:
                self._over(said)
            self._rest()
            if self.edge.waiting:
                self.edge.land()
            eventually(lambda: self.edge.in_flight == 0, within=_PATIENCE, every=0.002)
            self._rest()

    def _fault(self, fault: Fault, said: dict[str, Any]) -> None:
        trial = self.trial
        trial.border = said["border"]
        if trial.border == SENT:
            eventually(lambda: self.edge.seen >= said["sent"], within=_PATIENCE, every=0.002)
            eventually(lambda: self.edge.in_flight == self.edge.waiting, within=_PATIENCE, every=0.002)
        if not self.ticks:
            open_now = open_transactions(self.look)
            trial.in_transaction = open_now > 0
            if open_now and trial.border.startswith("http"):
                trial.violations.append(f"I5 {open_now} transactions are open while a call is on the wire")
        if fault is Fault.FROZEN and not trial.in_transaction:
            self._rest()
            self.child.say("go")
            self._over(self._until("done", "failed"))
            trial.completed = False
        else:
            self.child.kill()
            self._gone()

    def _over(self, said: dict[str, Any]) -> None:
        """The path has ended by itself."""
        trial = self.trial
        if "done" not in said:
            trial.violations.append(f"the path failed: {said.get('failed', 'it is gone')}")
            return
        trial.completed, trial.said, trial.crossed = True, said["said"], said["done"]
        missing = _KINDS.get(trial.path, _ALL_KINDS) - set(said["kinds"])
        if missing and trial.number == NEVER:
            trial.violations.append(f"borders not seen: {sorted(missing)}")

    def _until(self, *words: str) -> dict[str, Any]:
        """What the process says next of these; meanwhile the harness plays the rest of the world."""
        deadline = monotonic() + _PATIENCE
        while monotonic() < deadline:
            said = self.child.message(0.02)
            if said is None:
                if self.edge.waiting:  # the create lands after the guard's first 404
                    self._rest()
                    self.edge.land()
                if self.calls is not None and self.calls.done():
                    self.calls.result()
                    self.calls = None
                    self.child.say("finish")
            elif "ready" in said:
                self._call(said["ready"])
            elif "gone" in said or any(word in said for word in words):
                return said
        raise AssertionError(f"{self.trial.path}, border {self.trial.number}: the process says nothing")

    def _call(self, url: str) -> None:
        """Call the endpoint in the walking process, in a thread of its own."""
        pool = ThreadPoolExecutor(1)
        self.calls = pool.submit(self._calls, url)
        pool.shutdown(wait=False)

    def _calls(self, url: str) -> None:
        """Detach; again for the other reason; one that never was; twice. The first that is not answered ends it."""
        facts = self.site.facts[self.trial.path]
        known, unknown, user = UUID(facts["known"]), UUID(facts["unknown"]), UUID(facts["user"])
        client = SelectionsClient(url, TokenSource.from_settings(self.settings.auth))
        try:
            for snapshot, reason in (
                (known, Reason.BLOCK_REPLACED),
                (known, Reason.POST_DELETED),
                (unknown, Reason.BLOCK_REPLACED),
                (unknown, Reason.BLOCK_REPLACED),
            ):
                call = DetachCall(snapshot, reason, user)
                (reply,) = client.detach_all([call], call_timeout=timedelta(seconds=30), deadline=monotonic() + 30)
                if not _answered(reply):
                    return
        finally:
            client.close()

    def _rest(self) -> None:
        self.edge.failing.clear()
        if not self.recovery.come_to_rest():
            self.trial.violations.append("I2 it never came to rest")

    def _gone(self) -> None:
        """Wait until the server has noticed that the process is gone: its rows and its lock are free then."""
        beside = ["pin-worker", "pin-worker-queue"] if self.ticks else []
        eventually(
            lambda: (
                self.look.execute(
                    """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name NOT LIKE 'pin-faults%%' AND application_name <> ALL(%s)
                   AND backend_type = 'client backend'""",
                    [beside],
                ).fetchone()
                == (0,)
            ),
            within=_PATIENCE,
            every=0.003,
        )


def _answered(reply: Reply | None) -> bool:
    return reply is not None and reply.http_status is not None
