"""The step between our process and the server: run by path in a Python of its own, it becomes the server.

Between fork and exec no Python code is safe in a process with threads, so this stands in a program instead. It keeps
root's identity only until it has found its way here, since the server's user may not be able to.
Arguments: the parent's pid, user id, group id, then the server's command. Imports nothing but the standard library.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: str, user: str, group: str, *command: str) -> None:
    """Drop to the user, tie this process's life to the parent's, become the command."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(int(group))
        os.setuid(int(user))
    if sys.platform == "linux":  # after the change of user, which would undo it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != int(parent):  # it ended before the tie was made
            sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606 -- the server's own program


if __name__ == "__main__":
    main(*sys.argv[1:])
