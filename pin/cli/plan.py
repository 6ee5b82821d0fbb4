"""`pin quarantine plan`: how far the re-enqueuing of many has come, and how to stop it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rich_click as click

from pin.cli.changing import refused_in_words, who, who_and_why
from pin.cli.faults import Fault
from pin.cli.opening import database, ids_of
from pin.cli.output import emit, emit_one, output_option

if TYPE_CHECKING:
    from db.outbox.plans import Plan


@click.group()
def plan() -> None:
    """Look at the plans that re-enqueue many, and stop one."""


@plan.command("list")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="At most so many.")
@output_option
def list_(limit: int, output: str) -> None:
    """Print the plans, newest first."""
    from pin.operations import plans

    with database() as engine:
        found = plans.list_plans(engine, limit)
    emit([plan_row(one) for one in found], output)


@plan.command()
@click.argument("plan_id", metavar="PLAN")
@output_option
def show(plan_id: str, output: str) -> None:
    """Print one plan and what became of its canary; moves it on if its canary is over."""
    from pin.clock import utc_now
    from pin.operations import plans

    (wanted,) = ids_of([plan_id], "a plan")
    with database() as engine:
        plans.advance(engine, utc_now())
        view = plans.show(engine, wanted)
    if view is None:
        raise Fault("there is no such plan")
    standing = view.standing
    canary: dict[str, Any] = {
        "canaryDone": standing.done if standing else None,
        "canaryFailed": standing.failed if standing else None,
        "canaryWaiting": standing.waiting if standing else None,
    }
    emit_one(plan_row(view.plan) | canary, output)


@plan.command()
@click.argument("plan_id", metavar="PLAN")
@who_and_why
@output_option
def stop(plan_id: str, reason: str, actor: str | None, output: str) -> None:
    """Stop a plan: what has not moved stays quarantined, its canary stays the job's."""
    from pin.clock import utc_now
    from pin.operations import plans

    (wanted,) = ids_of([plan_id], "a plan")
    with database() as engine, _told(), refused_in_words():
        stopped = plans.stop(engine, wanted, actor=who(actor), reason=reason, now=utc_now())
    emit_one(plan_row(stopped), output)


def plan_row(found: "Plan") -> dict[str, Any]:
    """A plan as commands print it."""
    return {
        "id": found.id,
        "state": found.state,
        "filter": found.filter,
        "entries": len(found.entries),
        "canary": found.canary,
        "requeued": found.requeued,
        "actor": found.actor,
        "reason": found.reason,
        "said": found.said,
        "createdAt": found.created_at,
        "endedAt": found.ended_at,
    }


@contextmanager
def _told() -> Iterator[None]:
    from pin.operations.plans import PlanError

    try:
        yield
    except PlanError as error:
        raise Fault(str(error)) from None
