"""`pin reconcile` and `pin purge`: compare with selections, and delete what is over."""

import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from pin.cli.changing import actor_option, ask, dry_run_option, refused_in_words, who, who_and_why, yes_option
from pin.cli.faults import FAILED, told_plainly
from pin.cli.opening import database, selections, settings_here
from pin.cli.output import emit, emit_one, output_option, row_of

if TYPE_CHECKING:
    from pin.operations.reconcile import Finding


@click.command()
@click.option("--fix", is_flag=True, help="Stage an intent for each orphan.")
@click.option("--reason", metavar="TEXT", help="Why; needed with --fix, kept in the audit.")
@actor_option
@dry_run_option
@yes_option
@output_option
def reconcile(fix: bool, reason: str | None, actor: str | None, dry_run: bool, yes: bool, output: str) -> None:
    """Compare what live posts show with what selections says of the snapshots.

    Reports what is Missing, WronglyDetached or Orphaned; --fix detaches orphans by ordinary intents. Ends with 0 when
    both sides agree or every finding was mended, else with 1.
    """
    from pin.clock import utc_now
    from pin.operations.reconcile import FindingKind, Repair, compare, repair

    if fix and not reason:
        raise click.UsageError("--fix needs --reason.")
    with told_plainly():
        settings = settings_here()
    found: list[Finding] = []
    snapshots = shown = 0
    with database(settings) as engine:
        with selections(settings) as client:
            for page in compare(engine, client):
                snapshots, shown = snapshots + page.snapshots, shown + page.shown
                found += page.findings
        click.echo(f"{snapshots} snapshots, {shown} shown by live posts, {len(found)} findings", err=True)
        orphans = [one for one in found if one.kind is FindingKind.ORPHANED]
        if fix and orphans and not dry_run:
            ask(len(orphans), "Stage intents for", "orphans", yes=yes)
            with refused_in_words():
                found = repair(engine, found, actor=who(actor), reason=reason or "", now=utc_now())
    emit([row_of(one) for one in found], output)
    mended = {Repair.STAGED, Repair.SHOWN_MEANWHILE, Repair.UNDER_WAY}
    sys.exit(0 if all(one.repair in mended for one in found) else FAILED)


@click.command()
@click.option("--older-than", required=True, metavar="SPAN", help="Done for so long, such as 30d or 720h.")
@who_and_why
@dry_run_option
@yes_option
@output_option
def purge(older_than: str, reason: str, actor: str | None, dry_run: bool, yes: bool, output: str) -> None:
    """Delete Done entries with their history and events, a thousand at a time. The audit stays.

    An entry whose quarantine some sink has not been told of stays until it has been told, or given up.
    """
    from pin.clock import utc_now
    from pin.config.timespan import parse_timespan
    from pin.operations import audit
    from pin.operations import purge as operations

    with refused_in_words():
        age = parse_timespan(older_than)
        audit.need(who(actor), reason)
    now = utc_now()
    total: dict[str, Any] = {"entries": 0, "attempts": 0, "events": 0}
    with database() as engine, refused_in_words():
        would = operations.preview(engine, older_than=age, now=now)
        if would.untold:
            click.echo(f"{would.untold} old entries stay, their alerts are untold: pin alerts list", err=True)
        if dry_run:
            emit_one(row_of(would), output)
            return
        ask(would.entries, "Delete", "entries", yes=yes)
        total["untold"] = would.untold
        for gone in operations.purge(engine, older_than=age, actor=who(actor), reason=reason, now=now):
            total = {name: total[name] + value for name, value in row_of(gone).items()}
    emit_one(total, output)
