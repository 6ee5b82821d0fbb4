"""Re-enqueue many: a set frozen at the preview, all of it or a few first as a canary (J29; docs/decisions/0118).

The rest follows by itself once every canary is Done, moved by the next run or by whoever looks; the first failure of
one stops the plan, and the rest stays Quarantined.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Engine

from db.errors import transact
from db.outbox import plans as store
from db.outbox import requeue
from db.outbox.plans import Frozen, Plan, PlanState, Standing
from db.views import entries
from db.views.entries import StoredEntry
from pin.clock import new_id
from pin.operations import audit

MOST = 10_000
"""The largest set that one plan holds."""
SAMPLE = 20


class PlanError(Exception):
    """The plan is not there, or has been started or stopped already; the text may be shown."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What is to be re-enqueued: these ids, or everything with this last error, or (nothing given) everything.

    `error` is a fingerprint as `groups` gives it; `by_error` with None means the entries without a known one.
    """

    ids: tuple[UUID, ...] | None = None
    error: str | None = None
    by_error: bool = False

    def __str__(self) -> str:
        if self.ids is not None:
            return f"{len(self.ids)} ids"
        return f"error {self.error or '(none known)'}" if self.by_error else "all"


@dataclass(frozen=True, slots=True)
class Preview:
    """A frozen set: these entries at these versions. `sample` shows the first ones; `is_cut`: there are more."""

    filter: Filter
    entries: tuple[Frozen, ...]
    sample: tuple[StoredEntry, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan and what became of its canary (None before the start, or without one)."""

    plan: Plan
    standing: Standing | None
    sample: tuple[StoredEntry, ...]


def preview(engine: Engine, wanted: Filter) -> Preview:
    """What the filter finds among the quarantined entries now; changes nothing."""
    with engine.connect() as connection:
        found = store.freeze(connection, ids=wanted.ids, error=wanted.error, by_error=wanted.by_error, limit=MOST + 1)
        frozen = tuple(found[:MOST])
        sample = [stored for one in frozen[:SAMPLE] if (stored := entries.one(connection, one.entry_id)) is not None]
    return Preview(wanted, frozen, tuple(sample), len(found) > MOST)


def keep(engine: Engine, seen: Preview, *, actor: str, now: datetime) -> UUID:
    """Keep a preview as a plan, so that what is started later is the very set that was seen. Answers its id."""
    if not actor.strip():
        raise ValueError("an actor is needed")
    plan_id = new_id()
    transact(
        engine,
        lambda connection: store.keep(
            connection, plan_id=plan_id, frozen=seen.entries, filter_=str(seen.filter), actor=actor, now=now
        ),
    )
    return plan_id


def start(engine: Engine, plan_id: UUID, *, canary: int, actor: str, reason: str, now: datetime) -> Plan:
    """Start a kept plan: its first `canary` entries, or all for 0. Answers the plan as it stands then.

    What is no longer Quarantined at the version seen is left alone. Raises ValueError without actor or reason or for a
    negative canary, PlanError for an unknown plan or one that is not Previewed.
    """
    audit.need(actor, reason)
    if canary < 0:
        raise ValueError("a canary is a number of entries, or 0 for none")

    def go(connection: Connection) -> Plan:
        plan = store.read(connection, plan_id, lock=True)
        if plan is None:
            raise PlanError("there is no such plan")
        if plan.state is not PlanState.PREVIEWED:
            raise PlanError(f"the plan is {plan.state} already")
        requeue.start(connection, plan, canary=canary, actor=actor, reason=reason, now=now)
        return _again(store.read(connection, plan_id))

    return transact(engine, go)


def stop(engine: Engine, plan_id: UUID, *, actor: str, reason: str, now: datetime) -> Plan:
    """Stop a plan whose canary is out: the rest stays Quarantined, the canary stays the job's.

    Raises ValueError without actor or reason, PlanError where there is nothing to stop.
    """
    audit.need(actor, reason)

    def end(connection: Connection) -> Plan:
        plan = store.read(connection, plan_id, lock=True)
        if plan is None:
            raise PlanError("there is no such plan")
        if plan.state not in {PlanState.PREVIEWED, PlanState.CANARY}:
            raise PlanError(f"the plan is {plan.state} already")
        requeue.stop(connection, plan, f"stopped by {actor}: {reason}", now)
        details = {"plan": str(plan_id), "requeued": plan.requeued, "of": len(plan.entries)}
        audit.record(connection, actor=actor, action="stop-requeue", reason=reason, now=now, details=details)
        return _again(store.read(connection, plan_id))

    return transact(engine, end)


def show(engine: Engine, plan_id: UUID) -> PlanView | None:
    """The plan and its canary's standing, None for an unknown id."""
    with engine.connect() as connection:
        plan = store.read(connection, plan_id)
        if plan is None:
            return None
        out = plan.canary > 0 and plan.started_at is not None
        found = store.standing(connection, plan.entries[: plan.canary]) if out else None
        few: Sequence[Frozen] = plan.entries[:SAMPLE]
        sample = [stored for one in few if (stored := entries.one(connection, one.entry_id)) is not None]
    return PlanView(plan, found, tuple(sample))


def list_plans(engine: Engine, limit: int = 50) -> list[Plan]:
    """The plans, newest first."""
    with engine.connect() as connection:
        return store.newest(connection, limit)


def advance(engine: Engine, now: datetime) -> list[tuple[UUID, PlanState]]:
    """Move on every plan whose canary is over, as each run does at its start; answers those that moved."""
    return transact(engine, lambda connection: requeue.advance(connection, now))


def _again(plan: Plan | None) -> Plan:
    if plan is None:
        raise AssertionError("no plan goes away")
    return plan
