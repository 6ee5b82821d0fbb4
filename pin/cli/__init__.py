"""The command `pin`: the product's processes, the local stack, and what operators do (C6, J29).

Data goes to stdout, everything else to stderr. Exit codes: 0 done; 1 not (all) done, or it failed; 2 a wrong command
line; 69 the database does not answer or is not migrated; 78 wrong settings. Commands import what they need when they
run, so that `pin --help` is instant.
"""

import io
import sys

import rich_click as click

from pin.cli import (
    alerts,
    completion,
    config,
    database,
    doctor,
    entries,
    holding,
    looking,
    operator,
    plan,
    processes,
    quarantine,
    runs,
    stack,
    status,
    token,
    upkeep,
)
from pin.cli.faults import Fault

__all__ = ["cli", "main"]


@click.group(epilog="Exit codes: 0 done, 1 not done, 2 usage, 69 no database, 78 wrong settings.")
@click.version_option(package_name="pin")
def cli() -> None:
    """Detaches the snapshots that news posts no longer show.

    Settings come from the environment (PIN_…), `.env` and the TOML file that PIN_CONFIG names: `pin config show`.
    """


quarantine.quarantine.add_command(plan.plan)

for _command in (
    status.status,
    doctor.doctor,
    entries.entries,
    quarantine.quarantine,
    alerts.alerts,
    runs.runs,
    runs.run,
    holding.lock,
    holding.pause,
    holding.resume,
    upkeep.reconcile,
    upkeep.purge,
    looking.post,
    looking.snapshot,
    looking.audit,
    looking.system,
    database.db,
    processes.migrate,
    processes.web,
    processes.scheduler,
    processes.worker,
    stack.up,
    stack.demo,
    config.config,
    token.token,
    operator.operator,
    completion.completion,
):
    cli.add_command(_command)


def main() -> None:
    """The entry point; ends the process with the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has not every letter gets its escape instead
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="pin")
    except Fault as fault:
        click.echo(f"pin: {fault}", err=True)
        sys.exit(fault.exit_code)
