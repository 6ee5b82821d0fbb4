"""`pin up` and `pin demo`: the local stack."""

import sys

import rich_click as click

from pin.cli.faults import Fault, told_plainly


@click.command()
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 16), help="Worker commands.")
@click.option("--schedulers", default=1, show_default=True, type=click.IntRange(1, 16), help="Scheduler processes.")
def up(workers: int, schedulers: int) -> None:
    """Run the whole stack on this machine until Ctrl-C; its data stays in PIN_STATE_DIR (.pin).

    News listens on PIN_WEB__PORT (8000), selections on the next port. The database is the embedded PostgreSQL, or the
    one that PIN_DATABASE_URL names.
    """
    from db.embedded.server import EmbeddedServerError
    from pin.config.loading import load_settings
    from pin.stack.supervisor import StackError
    from pin.stack.up import up as run

    with told_plainly():
        try:
            run(load_settings(), workers=workers, schedulers=schedulers, announce=click.echo)
        except (StackError, EmbeddedServerError) as error:
            raise Fault(str(error)) from None


@click.command()
def demo() -> None:
    """Show the main job: an outage of selections, the backlog it leaves, and how the backlog drains.

    Real processes on a throw-away PostgreSQL; nothing is kept. Ends with the line `demo ok: …`, or says what is wrong
    and ends with 1.
    """
    from pin.demo.run import main

    sys.exit(main())
