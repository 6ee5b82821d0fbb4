"""A child's life tied to its parent's, so that a parent that was killed leaves no process behind (Linux).

Run by path in a Python of its own (`python -I -S lifeline.py PARENT COMMAND…`) it ties itself and becomes the command:
between fork and exec no Python code is safe in a process with threads. Imports nothing but the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """From now on this process gets SIGTERM when the thread that forked it ends.

    Raises SystemExit when `parent`, a process id, is this process' parent no longer.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the tie was made
            sys.exit("the parent is gone")


def main(parent: str, *command: str) -> None:
    """Tie this process to `parent` and become the command."""
    tie_to_parent(int(parent))
    os.execv(command[0], command)  # noqa: S606 - the stack's own command


if __name__ == "__main__":
    main(*sys.argv[1:])
