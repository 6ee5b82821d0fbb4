"""What every command that changes something asks for: who, why, and whether it is meant."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import rich_click as click

from pin.cli.faults import USAGE, Fault

Command = TypeVar("Command", bound=Callable[..., Any])

reason_option = click.option("--reason", required=True, metavar="TEXT", help="Why; kept in the audit.")
actor_option = click.option("--actor", metavar="NAME", help="Who; kept in the audit. Your user name unless given.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask, though it is more than one.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


def who_and_why(command: Command) -> Command:
    """The options --reason and --actor."""
    return reason_option(actor_option(command))


def who(actor: str | None) -> str:
    """The actor given, else the user's name."""
    return actor if actor is not None else _user()


def ask(count: int, verb: str, noun: str, *, yes: bool) -> None:
    """Ask before more than one is changed; without a terminal and --yes, refuse. Raises Fault when it is not meant."""
    if count <= 1 or yes:
        return
    if not sys.stdin.isatty():
        raise Fault(f"{count} {noun} and no terminal to ask on: say --yes; nothing was done", USAGE)
    if not click.confirm(f"{verb} {count} {noun}?", err=True):
        raise Fault("nothing was done")


@contextmanager
def refused_in_words() -> Iterator[None]:
    """An actor, a reason or a number that cannot be: a wrong command line."""
    try:
        yield
    except ValueError as error:
        raise Fault(str(error), USAGE) from None


def _user() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as containers have
        return f"uid {os.getuid()}"
