"""`pin quarantine`: what an operator does about entries the job has given up (J29, G21), on `pin.operations`."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import rich_click as click

from pin.cli.changing import ask, dry_run_option, refused_in_words, who, who_and_why, yes_option
from pin.cli.faults import FAILED, Fault
from pin.cli.opening import database, ids_of
from pin.cli.output import Row, emit, output_option

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from db.outbox.quarantine import QuarantinedEntry
    from db.views.entries import StoredEntry
    from pin.operations.plans import Preview
    from pin.rules.outbox import Entry


@click.group()
def quarantine() -> None:
    """List quarantined entries, and give them back to the job."""


@quarantine.command("list")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@output_option
def list_(limit: int, output: str) -> None:
    """Print the quarantined entries, longest quarantined first, with the last error of each."""
    from pin.operations import list_quarantined

    with database() as engine:
        found = list_quarantined(engine, limit=limit + 1)
    rows = [_row(one) for one in found[:limit]]
    emit(rows, output)
    if not rows:
        click.echo("nothing is quarantined", err=True)
    if len(found) > limit:
        click.echo(f"there are more than these {limit}: see --limit", err=True)


@quarantine.command()
@output_option
def groups(output: str) -> None:
    """Print the quarantined entries grouped by what they failed with, the largest group first."""
    from pin.operations.quarantine import groups as read

    with database() as engine:
        found = read(engine)
    rows: list[Row] = [
        {
            "lastError": one.error,
            "count": one.count,
            "firstAt": one.first_at,
            "lastAt": one.last_at,
            "sampleId": one.sample,
        }
        for one in found
    ]
    emit(rows, output)
    if not rows:
        click.echo("nothing is quarantined", err=True)


@quarantine.command()
@click.argument("ids", nargs=-1, metavar="ID...")
@click.option("--error", metavar="TEXT", help="Every entry with this last error, as `groups` prints it.")
@click.option("--all", "everything", is_flag=True, help="Every quarantined entry.")
@click.option(
    "--canary", default=0, type=click.IntRange(0), metavar="N", help="So many first; the rest once they are Done."
)
@who_and_why
@dry_run_option
@yes_option
@output_option
def requeue(
    ids: Sequence[str],
    error: str | None,
    everything: bool,
    canary: int,
    reason: str,
    actor: str | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Give quarantined entries back to the job: Pending, attempts 0, due now.

    Prints an answer for each id; ends with 0 if every one of them was re-enqueued, with 1 if any was not. What is not
    quarantined stays as it is. With --error, --all or --canary the set is frozen first and moves as a plan.
    """
    if sum([bool(ids), error is not None, everything]) > 1:
        raise click.UsageError("Give ids, or --error, or --all: one of them.")
    if not ids and error is None and not everything:
        raise click.UsageError("Missing argument 'ID...' (or --error, or --all).")
    wanted = ids_of(ids)
    with database() as engine:
        if ids and not canary and not dry_run:
            ask(len(wanted), "Requeue", "entries", yes=yes)
            _requeue_ids(engine, wanted, who(actor), reason)
        else:
            _requeue_set(engine, wanted or None, error, canary, reason, who(actor), dry_run, yes, output)


def _requeue_ids(engine: "Engine", wanted: list[UUID], actor: str, reason: str) -> None:
    from pin.clock import utc_now
    from pin.operations import RequeueResult
    from pin.operations import requeue as move

    with refused_in_words():
        answers = move(engine, wanted, actor=actor, reason=reason, now=utc_now())
    for answer in answers:
        match answer.result:
            case RequeueResult.REQUEUED:
                told = "requeued"
            case RequeueResult.NOT_QUARANTINED:
                told = f"not quarantined, it is {answer.status}: unchanged"
            case RequeueResult.UNKNOWN:
                told = "unknown"
        click.echo(f"{answer.entry_id}  {told}")
    done = sum(answer.result is RequeueResult.REQUEUED for answer in answers)
    click.echo(f"{done} of {len(answers)} requeued", err=True)
    sys.exit(0 if done == len(answers) else FAILED)


def _requeue_set(
    engine: "Engine",
    ids: list[UUID] | None,
    error: str | None,
    canary: int,
    reason: str,
    actor: str,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    from pin.clock import utc_now
    from pin.operations import audit, plans

    with refused_in_words():
        audit.need(actor, reason)
    wanted = plans.Filter(ids=tuple(ids) if ids else None, error=error, by_error=error is not None)
    seen = plans.preview(engine, wanted)
    _say_preview(seen, canary)
    if not seen.entries:
        raise Fault("nothing is quarantined that matches; nothing was done")
    if dry_run:
        emit([_stored_row(one) for one in seen.sample], output)
        return
    ask(len(seen.entries), "Requeue", "entries", yes=yes)
    now = utc_now()
    plan_id = plans.keep(engine, seen, actor=actor, now=now)
    plan = plans.start(engine, plan_id, canary=canary, actor=actor, reason=reason, now=now)
    from pin.cli.plan import plan_row

    emit([plan_row(plan)], output)
    if plan.ended_at is None:
        click.echo(f"the rest follows once these are Done: pin quarantine plan show {plan.id}", err=True)


def _say_preview(seen: "Preview", canary: int) -> None:
    count = len(seen.entries)
    few = f", {canary} of them first" if 0 < canary < count else ""
    more = "; there are more, for another time" if seen.is_cut else ""
    click.echo(f"{count} quarantined {'entry' if count == 1 else 'entries'} ({seen.filter}){few}{more}", err=True)


def _row(found: "QuarantinedEntry") -> Row:
    return _columns(found.entry, found.last_error) | {"quarantinedAt": found.updated_at}


def _stored_row(found: "StoredEntry") -> Row:
    return _columns(found.entry, found.last_error) | {"quarantinedAt": found.updated_at}


def _columns(entry: "Entry", last_error: str | None) -> dict[str, object]:
    return {
        "id": entry.id,
        "snapshotId": entry.snapshot_id,
        "postId": entry.post_id,
        "reason": str(entry.reason),
        "attempts": entry.attempts,
        "lastError": last_error,
        "createdAt": entry.created_at,
    }
