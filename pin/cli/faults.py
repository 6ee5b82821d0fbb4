"""Faults that can be foreseen, each told in a line and with an exit code of its own, never with a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

FAILED = 1
USAGE = 2
NO_DATABASE = 69
"""EX_UNAVAILABLE of sysexits."""


class Fault(Exception):  # noqa: N818 - a foreseen fault, told to people
    """A foreseen fault: `pin.cli.main` prints its message on stderr and ends with its exit code."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turn what can go wrong around a command into a Fault. Everything else is a defect and keeps its traceback."""
    from sqlalchemy.exc import OperationalError, ProgrammingError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    from pin.config.faults import EXIT_BAD_SETTINGS, SettingsError

    try:
        yield
    except SettingsError as error:
        raise Fault(f"the settings are wrong:\n{error}", EXIT_BAD_SETTINGS) from None
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) not in {"42P01", "42703", "3F000"}:
            raise
        raise Fault("the database's schema is not this version's: run `pin migrate`", NO_DATABASE) from None
    except PoolTimeout:
        raise Fault("the database does not answer in time", NO_DATABASE) from None
    except OperationalError as error:
        said = next(iter(str(error.orig).splitlines()), type(error.orig).__name__)
        raise Fault(f"the database does not answer: {said}", NO_DATABASE) from None
