"""The product broken on purpose, in the walking process alone: the harness's self-check (it must notice each)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

import actors.detach
import db.outbox.outcome
import pin.job.record
import pin.news.blocks
import pin.news.writing
import scheduler
from db.connect import make_engine
from pin.job.delivery import Batch
from pin.news.detaching import first_attempts, stage_detach
from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Entry, Outcome, Policy, Reply, Status, decide
from tests.faults.orders import Order


def unfenced_outcome(_: Order) -> None:
    """A late failure is written over whatever the entry has become since (J16 broken)."""

    def always(entry: Entry, _version: int, reply: Reply, now: datetime, policy: Policy) -> Outcome:
        return decide(replace(entry, status=Status.PENDING), entry.version, reply, now, policy)

    _put(pin.job.record, "decide", always)
    statement = db.outbox.outcome._APPLY.text
    fence = " AND o.version = d.version AND o.status <> 'Done'"
    assert fence in statement
    _put(db.outbox.outcome, "_APPLY", text(statement.replace(fence, "")))


def hand_over_of_its_own(order: Order) -> None:
    """The message is committed before the claim is (G6 broken)."""
    engine = make_engine(order.database)

    def apart(_: Connection, batch: Batch) -> UUID:
        with engine.begin() as own:
            return actors.detach.hand_over(own, batch)

    _put(scheduler, "hand_over", apart)


def no_guard(_: Order) -> None:
    """Snapshots are created with no intent to clean up after them (G13 broken)."""
    _put(pin.news.blocks, "_guard", lambda *_: ())


def intent_apart(_: Order) -> None:
    """The intent is committed before the switch is (J18 broken)."""
    stage: Any = stage_detach

    def apart(desk: Any, _connection: Connection, *rest: Any) -> Any:
        with desk.engine.begin() as own:
            return stage(desk, own, *rest)

    _put(pin.news.writing, "stage_detach", apart)


def intent_after(_: Order) -> None:
    """The intent is written in a transaction after the switch's (J18 broken)."""
    stage: Any = stage_detach

    def later(desk: Any, _connection: Connection, *rest: Any) -> Any:
        return desk, rest

    def then(_desk: Any, post: Any, given: Any) -> None:
        desk, rest = given
        with desk.engine.begin() as own:
            staged = stage(desk, own, *rest)
        first_attempts(desk, post, staged)

    _put(pin.news.writing, "stage_detach", later)
    _put(pin.news.writing, "first_attempts", then)


def transaction_on_the_wire(order: Order) -> None:
    """Calls are made inside an open transaction (J12 broken)."""
    engine, calls = make_engine(order.database), SelectionsClient.detach_all

    def inside(self: SelectionsClient, made: Sequence[Any], **limits: Any) -> Any:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            return calls(self, made, **limits)

    _put(SelectionsClient, "detach_all", inside)


def _put(owner: Any, name: str, broken: Any) -> None:
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name}: the breakage breaks nothing")
    setattr(owner, name, broken)


BREAKAGES: dict[str, Callable[[Order], None]] = {
    made.__name__: made
    for made in (
        unfenced_outcome,
        hand_over_of_its_own,
        no_guard,
        intent_apart,
        intent_after,
        transaction_on_the_wire,
    )
}
