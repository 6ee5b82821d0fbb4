"""The moves of a plan: requeue what it froze, a few first, then the rest (db/outbox/plans.py has its states)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from db.outbox import quarantine
from db.outbox.plans import Frozen, Plan, PlanState, move, standing, waiting
from db.outbox.quarantine import AuditRow
from pin.clock import new_id

_AS_FROZEN = text("""
    SELECT EXISTS (
        SELECT FROM unnest(CAST(:ids AS uuid[]), CAST(:versions AS bigint[])) AS c (entry_id, version)
        JOIN news.snapshot_detach_outbox o ON o.id = c.entry_id AND o.version = c.version
        WHERE o.status = 'Quarantined'
    )
""")


def requeue_frozen(
    connection: Connection,
    frozen: Sequence[Frozen],
    *,
    actor: str,
    reason: str,
    plan_id: UUID | None,
    now: datetime,
    skip_locked: bool = False,
) -> set[UUID]:
    """Re-enqueue those that are still Quarantined at their version, each with an audit row (G21). Answers which."""
    found = quarantine.lock_entries(connection, [one.entry_id for one in frozen], skip_locked=skip_locked)
    same = [one.entry_id for one in frozen if one.entry_id in found and found[one.entry_id][0].version == one.version]
    moved = quarantine.requeue(connection, same, now) if same else set()
    rows = [
        AuditRow(
            id=new_id(),
            entry_id=entry.id,
            snapshot_id=entry.snapshot_id,
            actor=actor,
            action="requeue",
            reason=reason,
            details={"attempts": entry.attempts, "lastError": error, "version": entry.version}
            | ({"plan": str(plan_id)} if plan_id else {}),
        )
        for entry, error in found.values()
        if entry.id in moved
    ]
    quarantine.write_audit(connection, rows, now)
    return moved


def start(connection: Connection, plan: Plan, *, canary: int, actor: str, reason: str, now: datetime) -> int:
    """Re-enqueue the first `canary` of a locked Previewed plan, or all of it for 0. Answers how many moved.

    Those that have changed since the preview are passed over, so that as many move as were asked for (A45).
    """
    moved: set[UUID] = set()
    taken = 0
    while taken < len(plan.entries) and (canary == 0 or len(moved) < canary):
        upto = taken + canary - len(moved) if canary else len(plan.entries)
        few = plan.entries[taken:upto]
        moved |= requeue_frozen(connection, few, actor=actor, reason=reason, plan_id=plan.id, now=now)
        taken += len(few)
    whole = taken == len(plan.entries)
    move(
        connection,
        plan.id,
        PlanState.COMPLETED if whole else PlanState.CANARY,
        canary=0 if whole else taken,
        requeued=len(moved),
        actor=actor,
        reason=reason,
        said=None,
        now=now,
    )
    return len(moved)


def stop(connection: Connection, plan: Plan, said: str, now: datetime) -> None:
    """End a locked plan; what has not moved stays Quarantined."""
    move(
        connection,
        plan.id,
        PlanState.STOPPED,
        canary=plan.canary,
        requeued=0,
        actor=plan.actor,
        reason=plan.reason or said,
        said=said[:512],
        now=now,
    )


def advance(connection: Connection, now: datetime) -> list[tuple[UUID, PlanState]]:
    """Move on every plan whose canary is over. Answers the plans that moved, with their new state.

    The rest goes out once one of the canary was delivered and none failed again; it stays once one did. A canary of
    which none was delivered proves nothing: some more go ahead (A45). A row that another transaction holds waits for
    the next call, and the plan with it (A43). Called by each run and by whoever looks at a plan.
    """
    moved: list[tuple[UUID, PlanState]] = []
    for plan in waiting(connection):
        few, rest = plan.entries[: plan.canary], plan.entries[plan.canary :]
        found = standing(connection, few)
        if found.failed:
            stop(connection, plan, f"{found.failed} of the first {plan.canary} failed again: {found.error}", now)
            moved.append((plan.id, PlanState.STOPPED))
        elif not found.waiting:
            state = _send_more(connection, plan, rest if found.delivered else rest[: max(1, plan.canary)], now)
            if state is not None:
                moved.append((plan.id, state))
    return moved


def _send_more(connection: Connection, plan: Plan, more: Sequence[Frozen], now: datetime) -> PlanState | None:
    """Re-enqueue the rest, or the next canary; answers the state if that changed or the plan came further."""
    reason = plan.reason or ""
    gone = requeue_frozen(connection, more, actor=plan.actor, reason=reason, plan_id=plan.id, now=now, skip_locked=True)
    upto = plan.canary + len(more)
    over = upto == len(plan.entries)
    held = _still_quarantined(connection, more)
    if held and not gone:
        return None
    state = PlanState.COMPLETED if over and not held else PlanState.CANARY
    move(
        connection,
        plan.id,
        state,
        canary=plan.canary if over or held else upto,
        requeued=len(gone),
        actor=plan.actor,
        reason=reason,
        said=None,
        now=now,
    )
    return None if held else state


def _still_quarantined(connection: Connection, frozen: Sequence[Frozen]) -> bool:
    """Whether one of them is still as it was frozen: another transaction holds it."""
    values = {"ids": [one.entry_id for one in frozen], "versions": [one.version for one in frozen]}
    return bool(connection.execute(_AS_FROZEN, values).scalar())
