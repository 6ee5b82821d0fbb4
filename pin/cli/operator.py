"""`pin operator`: a line for the file of those who may use the console."""

import sys

import rich_click as click

from pin.cli.faults import USAGE, Fault


@click.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator"]), default="viewer", show_default=True)
def operator(name: str, role: str) -> None:
    """Print the line that lets NAME into the console; append it to the file of PIN_OPS__OPERATORS_FILE.

    Asks for a password; without a terminal it is read from stdin, one line. Only its scrypt hash is printed.
    """
    from pin.access.operators import Role, make_operator

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    try:
        made = make_operator(name, Role(role), password)
    except ValueError as error:
        raise Fault(str(error), USAGE) from None
    click.echo(made.line)
