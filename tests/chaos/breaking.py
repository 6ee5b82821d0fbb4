"""The product broken on purpose, in the very processes of a run, to show that the run notices (`--self-check`).

Loaded from outside: a run puts `tests/chaos/sabotage` on the PYTHONPATH of its processes, whose `sitecustomize` calls
`break_product` with the names in PIN_TEST_BREAK. `clock` is no breakage: it moves the process's wall clock.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

NAMES = "PIN_TEST_BREAK"
CLOCK_SHIFT = "PIN_TEST_CLOCK_SHIFT"


def unfenced_outcome() -> None:
    """A late failure is written over whatever the entry has become since (J16 broken)."""
    from sqlalchemy import text

    import db.outbox.outcome
    import pin.job.record
    from pin.rules.outbox import Entry, Outcome, Policy, Reply, Status, decide

    def always(entry: Entry, _version: int, reply: Reply, now: datetime, policy: Policy) -> Outcome:
        return decide(replace(entry, status=Status.PENDING), entry.version, reply, now, policy)

    pin.job.record.decide = always  # type: ignore[assignment, attr-defined]
    fence = " AND o.version = d.version AND o.status <> 'Done'"
    statement = db.outbox.outcome._APPLY.text
    if fence not in statement:
        raise AssertionError("the statement that applies outcomes has changed: this breakage must follow it")
    db.outbox.outcome._APPLY = text(statement.replace(fence, ""))


def claim_off_the_lock() -> None:
    """The claim runs in a session that does not hold the lock (G5 broken)."""
    import db.outbox.claim
    from db.connect import make_engine

    claim_due = db.outbox.claim.claim_due

    def apart(_connection: Any, terms: Any, **given: Any) -> Any:
        engine = make_engine(os.environ["PIN_DATABASE_URL"])
        try:
            with engine.begin() as own:
                backend = own.exec_driver_sql("SELECT pg_backend_pid()").scalar()
                taken = claim_due(own, replace(terms, backend_pid=backend), **given)
        finally:
            engine.dispose()
        return replace(taken, gate=replace(taken.gate, backend_pid=terms.backend_pid))

    db.outbox.claim.claim_due = apart  # type: ignore[assignment]


def intent_apart() -> None:
    """The intent is committed in a transaction of its own (J18 broken)."""
    import pin.news.status
    import pin.news.writing
    from pin.news.detaching import stage_detach

    def apart(desk: Any, _connection: Any, *rest: Any) -> Any:
        with desk.engine.begin() as own:
            return stage_detach(desk, own, *rest)

    pin.news.writing.stage_detach = apart  # type: ignore[assignment, attr-defined]
    pin.news.status.stage_detach = apart  # type: ignore[assignment, attr-defined]


def transaction_on_the_wire() -> None:
    """Calls are made inside an open transaction (J12 broken)."""
    from sqlalchemy import text

    from db.connect import make_engine
    from pin.outgoing.selections import SelectionsClient

    calls = SelectionsClient.detach_all
    engine = make_engine(os.environ["PIN_DATABASE_URL"], application_name="pin-worker")

    def inside(self: SelectionsClient, made: Any, **limits: Any) -> Any:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            return calls(self, made, **limits)

    SelectionsClient.detach_all = inside  # type: ignore[assignment, method-assign]


BREAKAGES: dict[str, Callable[[], None]] = {
    made.__name__: made for made in (unfenced_outcome, claim_off_the_lock, intent_apart, transaction_on_the_wire)
}


def sabotage() -> dict[str, str]:
    """The environment of a process that loads this module at its start."""
    folders = [str(Path(__file__).parent / "sabotage"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def break_product() -> None:
    """Break what the environment names, and set the clock as it says."""
    if shift := os.environ.get(CLOCK_SHIFT):
        _shift_clock(timedelta(seconds=float(shift)))
    for name in filter(None, os.environ.get(NAMES, "").split(",")):
        BREAKAGES[name]()


def _shift_clock(shift: timedelta) -> None:
    import pin.clock

    utc_now = pin.clock.utc_now  # before anything imports it by name

    def shifted() -> datetime:
        return utc_now() + shift

    pin.clock.utc_now = shifted
