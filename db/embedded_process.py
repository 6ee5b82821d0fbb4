"""What the embedded server's process is to the system: whose it is, whose child, and whether it lives."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from db.embedded_place import EmbeddedServerError, server_user

_LEAVE_WITHIN = 5.0  # seconds: a server whose parent was just killed is still shutting down
_POLL = 0.02
_PR_SET_PDEATHSIG = 1


def is_ready(cluster: Path, pid: int) -> bool:
    """Does the postmaster of this id say that it takes connections."""
    # postmaster.pid: the pid in line 1, the status in line 8.
    lines = _postmaster_lines(cluster)
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"  # noqa: PLR2004


def _postmaster_lines(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def refuse_a_live_server(cluster: Path) -> None:
    """Raise EmbeddedServerError for a living server on this data; remove the lock file of a dead one."""
    deadline = time.monotonic() + _LEAVE_WITHIN
    while lines := _postmaster_lines(cluster):
        pid = int(lines[0])
        if not _serves(pid, cluster):
            # Its pid may be some other program's by now, which PostgreSQL would take for the server.
            (cluster / "postmaster.pid").unlink(missing_ok=True)
            return
        if time.monotonic() > deadline:
            raise EmbeddedServerError(f"a server runs on {cluster} already: process {pid}")
        time.sleep(_POLL)


def _serves(pid: int, cluster: Path) -> bool:
    process = Path("/proc", str(pid))
    try:
        if not process.parent.joinpath("self").exists():
            os.kill(pid, 0)
            return True
        try:
            return (process / "cwd").readlink() == cluster  # every server process works inside its data
        except PermissionError:  # root in a container may not trace others' processes
            return (process / "comm").read_text().strip() == "postgres"
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False  # gone, or another user's: that cannot serve our data


def ends_with_parent() -> Callable[[], None]:
    """What the child does between fork and exec (after dropping root's identity, which would clear it)."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
            if os.getppid() != parent:  # it died before the tie was made
                os._exit(1)

    return tie


def identity(home: Path, as_root: bool) -> dict[str, Any]:
    """Arguments of subprocess: who runs the program, where, with which environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    arguments: dict[str, Any] = {"cwd": home, "env": {**environment, "LC_ALL": "C"}}
    if as_root:
        owner = server_user()
        arguments |= {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    return arguments
