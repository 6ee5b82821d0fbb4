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
    from db.contract import UnfitDatabaseError
    from db.embedded.place import EmbeddedServerError
    from db.errors import Meaning, describe, meaning_of
    from pin.config.faults import EXIT_BAD_SETTINGS, SettingsError

    try:
        yield
    except SettingsError as error:
        raise Fault(f"the settings are wrong:\n{error}", EXIT_BAD_SETTINGS) from None
    except UnfitDatabaseError as error:
        raise Fault(str(error), NO_DATABASE) from None
    except EmbeddedServerError as error:
        raise Fault(str(error)) from None
    except OSError as error:
        raise Fault(_of_the_system(error)) from None
    except Exception as error:
        if meaning_of(error) in {None, Meaning.FAULT, Meaning.BAD_DATA}:
            raise
        raise Fault(describe(error), NO_DATABASE) from None


def _of_the_system(error: OSError) -> str:
    """What the file system or the network says, with the file's name where there is one."""
    said = error.strerror or type(error).__name__
    return f"{error.filename}: {said}" if error.filename else said
