"""`pin lock`, `pin pause`, `pin resume`: who runs, and whether the job may."""

import rich_click as click

from pin.cli.changing import refused_in_words, who, who_and_why
from pin.cli.faults import Fault
from pin.cli.opening import database
from pin.cli.output import emit_one, inert, output_option, row_of


@click.group()
def lock() -> None:
    """See who holds the runner's lock, and take it from one that hangs."""


@lock.command()
@output_option
def show(output: str) -> None:
    """Print who holds the lock and for how long; nothing when it is free."""
    from pin.operations.lock import show as read

    with database() as engine:
        holder = read(engine)
    if holder is None:
        click.echo("the lock is free", err=True)
        return
    emit_one(row_of(holder), output)


@lock.command()
@click.option("--pid", type=int, help="Only if this process holds it; as `show` prints it.")
@who_and_why
@output_option
def release(pid: int | None, reason: str, actor: str | None, output: str) -> None:
    """End the database session that holds the lock; the next tick is anyone's.

    A live runner notices before its next claim and stops; nothing is lost. Ends with 1 when nobody held it.
    """
    from pin.clock import utc_now
    from pin.operations import lock as operations

    with database() as engine, refused_in_words():
        holder = operations.show(engine)
        wanted = pid if pid is not None else holder.pid if holder else 0
        ended = operations.release(engine, pid=wanted, actor=who(actor), reason=reason, now=utc_now())
    if ended is None:
        raise Fault("the lock is free" if holder is None else f"process {wanted} does not hold it; nothing was done")
    emit_one(row_of(ended), output)


@click.command()
@who_and_why
def pause(reason: str, actor: str | None) -> None:
    """Pause the job: nothing is claimed until `pin resume`. What workers hold already is delivered."""
    from pin.clock import utc_now
    from pin.operations.pause import pause as begin

    with database() as engine, refused_in_words():
        found, made = begin(engine, actor=who(actor), reason=reason, now=utc_now())
    if not made:
        raise Fault(inert(f"paused already, by {found.actor} since {found.since.isoformat()}: {found.reason}"))
    click.echo("paused; until: pin resume --reason …", err=True)


@click.command()
@who_and_why
def resume(reason: str, actor: str | None) -> None:
    """Resume the job; the next tick goes on."""
    from pin.clock import utc_now
    from pin.operations.pause import resume as end

    with database() as engine, refused_in_words():
        ended = end(engine, actor=who(actor), reason=reason, now=utc_now())
    if ended is None:
        raise Fault("the job is not paused")
    click.echo(inert(f"resumed; it had been paused by {ended.actor}: {ended.reason}"), err=True)
