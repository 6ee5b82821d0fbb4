"""`pin db`: the schema."""

import rich_click as click

from pin.cli.faults import NO_DATABASE, Fault
from pin.cli.opening import database
from pin.cli.processes import migrate


@click.group()
def db() -> None:
    """Bring the database to this version's schema, or see whether it is there."""


@db.command()
def check() -> None:
    """Say which schema the database has; ends with 69 when it is older than this version's."""
    from db.migrate import current, head

    with database() as engine, engine.connect() as connection:
        revision = current(connection)
    if revision is None or revision < head():
        raise Fault(f"the schema is at {revision or 'nothing'}, needed is {head()}: run `pin db migrate`", NO_DATABASE)
    click.echo(f"the schema is at {revision}")


db.add_command(migrate)
