"""`pin doctor`: each dependency tried, and the mend named."""

import sys

import rich_click as click

from pin.cli.faults import FAILED, told_plainly
from pin.cli.opening import database, settings_here
from pin.cli.output import emit, inert, output_option, row_of


@click.command()
@output_option
def doctor(output: str) -> None:
    """Try settings, database, schema, clock, credential, selections, workers and job; say what to mend.

    Ends with 1 if anything failed.
    """
    from pin.clock import utc_now
    from pin.operations.doctor import Check, CheckState, examine

    with told_plainly():
        settings = settings_here()
    checks = [Check("settings", CheckState.OK, "the settings are right")]
    with database(settings) as engine:
        checks += examine(engine, settings, utc_now())
    if output == "table":
        for one in checks:
            colour = {"Ok": "green", "Failed": "red", "Warning": "yellow"}.get(one.state.value)
            click.echo(f"{click.style(one.state.value.ljust(9), fg=colour)} {one.name.ljust(11)} {inert(one.says)}")
            if one.mend:
                click.echo(f"{' ' * 22}-> {inert(one.mend)}")
    else:
        emit([row_of(one) for one in checks], output)
    sys.exit(FAILED if any(one.state is CheckState.FAILED for one in checks) else 0)
