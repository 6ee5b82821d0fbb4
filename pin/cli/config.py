"""`pin config`: what the settings are, and whether they are right (J7)."""

import rich_click as click

from pin.cli.faults import told_plainly


@click.group()
def config() -> None:
    """Check or show the settings."""


@config.command()
def check() -> None:
    """Check the settings as a process would at its start; every fault at once, exit code 78."""
    from pin.settings import load_settings

    with told_plainly():
        load_settings()
    click.echo("the settings are right")


@config.command()
def show() -> None:
    """Print every setting by its environment name, as the processes here see it; passwords are masked."""
    from pydantic import BaseModel

    from pin.settings import PREFIX, load_settings
    from pin.settings_faults import masked

    def lines(group: BaseModel, prefix: str) -> None:
        for field in type(group).model_fields:
            value, name = getattr(group, field), f"{prefix}{field}".upper()
            if isinstance(value, BaseModel):
                lines(value, f"{name}__")
            else:
                click.echo(f"{name}={masked(_written(value))}")

    with told_plainly():
        lines(load_settings(), PREFIX)


def _written(value: object) -> str:
    """A value as the environment would hold it."""
    if value is None:
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
