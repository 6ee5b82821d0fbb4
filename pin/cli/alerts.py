"""`pin alerts`: which sinks have not been told of which quarantines, on `pin.operations.alerts` (G27)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

from pin.cli.changing import ask, dry_run_option, refused_in_words, who, who_and_why, yes_option
from pin.cli.faults import Fault
from pin.cli.opening import database, ids_of
from pin.cli.output import Row, emit, output_option

if TYPE_CHECKING:
    from db.outbox.alerts import AlertRow

_Command = TypeVar("_Command", bound=Callable[..., Any])

_sink_option = click.option("--sink", metavar="NAME", help="Of this sink alone: log, alertmanager or webhook.")


def _which(command: _Command) -> _Command:
    """The argument and the options that say which alerts are meant."""
    every = click.option("--all", "everything", is_flag=True, help="Every alert that is untold.")
    return click.argument("ids", nargs=-1, metavar="EVENT...")(_sink_option(every(command)))


@click.group(invoke_without_command=True)
@click.pass_context
def alerts(context: click.Context) -> None:
    """List the alerts that a sink has not taken, retry them, or give them up. Alone: the list."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@alerts.command("list")
@_sink_option
@click.option("--ended", is_flag=True, help="Then those that were told or given up lately.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 10_000), help="Maximum number of rows.")
@output_option
def list_(sink: str | None = None, ended: bool = False, limit: int = 100, output: str = "table") -> None:
    """Print what is untold, by sink, the oldest first: tries, the last error, the next try."""
    from pin.operations.alerts import list_alerts

    with database() as engine, refused_in_words():
        found = list_alerts(engine, sink=sink, with_ended=ended, limit=limit + 1)
    emit([_row(one) for one in found[:limit]], output)
    if not found:
        click.echo("every sink has been told of every quarantine", err=True)
    if len(found) > limit:
        click.echo(f"there are more than these {limit}: see --limit", err=True)


@alerts.command()
@_which
@who_and_why
@dry_run_option
@yes_option
@output_option
def retry(
    ids: Sequence[str],
    sink: str | None,
    everything: bool,
    reason: str,
    actor: str | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Have untold alerts tried at the next tick, whatever their backoff says. Tries are kept."""
    from pin.operations.alerts import retry as change

    _change(change, "Retry", ids, sink, everything, reason, actor, dry_run, yes, output)


@alerts.command("give-up")
@_which
@who_and_why
@dry_run_option
@yes_option
@output_option
def give_up(
    ids: Sequence[str],
    sink: str | None,
    everything: bool,
    reason: str,
    actor: str | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    """Decide that a sink need not be told: it is tried no more, and a purge may take the event.

    An event whose log is given up reaches no other sink either.
    """
    from pin.operations.alerts import give_up as change

    _change(change, "Give up", ids, sink, everything, reason, actor, dry_run, yes, output)


def _change(
    change: "Callable[..., list[AlertRow]]",
    verb: str,
    ids: Sequence[str],
    sink: str | None,
    everything: bool,
    reason: str,
    actor: str | None,
    dry_run: bool,
    yes: bool,
    output: str,
) -> None:
    from pin.clock import utc_now
    from pin.operations import alerts as operations
    from pin.operations import audit

    if bool(ids) == everything:
        raise click.UsageError("Give the ids of events, or --all: one of them.")
    with refused_in_words():
        audit.need(who(actor), reason)
        wanted = operations.Chosen(tuple(ids_of(ids)) if ids else None, sink)
    with database() as engine:
        found = operations.chosen(engine, wanted)
        if not found:
            raise Fault("nothing is untold that matches; nothing was done")
        if not dry_run:
            ask(len(found), verb, "alerts", yes=yes)
            found = change(engine, found, actor=who(actor), reason=reason, now=utc_now())
    emit([_row(one) for one in found], output)
    click.echo(f"{len(found)} alerts{' would be' if dry_run else ''} changed", err=True)


def _row(found: "AlertRow") -> Row:
    return {
        "eventId": found.event_id,
        "sink": found.sink,
        "state": found.state,
        "tries": found.tries,
        "lastError": found.last_error,
        "nextTryAt": None if found.ended_at else found.next_try_at,
        "endedAt": found.ended_at,
        "occurredAt": found.occurred_at,
        "entryId": found.entry_id,
        "snapshotId": found.snapshot_id,
    }
