"""`pin config`: what the settings are, whether they are right, and what each is for (J7)."""

import rich_click as click

from pin.cli.faults import USAGE, Fault, told_plainly
from pin.cli.output import emit_one, output_option


@click.group()
def config() -> None:
    """Check, show or explain the settings."""


@config.command()
def check() -> None:
    """Check the settings as a process would at its start; every fault at once, exit code 78."""
    from pin.config.loading import load_settings

    with told_plainly():
        load_settings()
    click.echo("the settings are right")


@config.command()
def show() -> None:
    """Print every setting by its environment name, as the processes here see it; passwords are masked."""
    from pin.config.loading import load_settings
    from pin.operations.system import settings_in_force

    with told_plainly():
        settings = load_settings()
    for name, value in settings_in_force(settings):
        click.echo(f"{name}={value}")


@config.command()
@click.argument("name", metavar="NAME")
@output_option
def explain(name: str, output: str) -> None:
    """Say what a setting is, its default, its value here and where that comes from.

    NAME is as in the environment or in TOML: PIN_RETRY__BATCH_SIZE or retry.batch_size.
    """
    from pin.cli.explaining import UnknownSettingError, explained
    from pin.config.loading import load_settings

    with told_plainly():
        settings = load_settings()
        try:
            record = explained(name, settings)
        except UnknownSettingError as unknown:
            raise Fault(str(unknown), USAGE) from None
    emit_one(record, output)
