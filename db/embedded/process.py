"""What the embedded server's process is to the system: whose it is, whose child, and whether it lives."""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from db.embedded import launch
from db.embedded.place import EmbeddedServerError, server_user

_NOTICE_WITHIN = 0.5  # seconds: a server whose parent was just killed learns of it
_LEAVE_WITHIN = 30.0  # and shuts down
_POLL = 0.02


def is_ready(cluster: Path, pid: int) -> bool:
    """Does the postmaster of this id say that it takes connections."""
    lines = _postmaster_lines(cluster)
    return lines[:1] == [str(pid)] and _status(lines) == "ready"


def _postmaster_lines(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _status(lines: list[str]) -> str:
    # postmaster.pid holds the pid in line 1 and the status in line 8.
    return "".join(lines[7:8]).strip()


def refuse_a_live_server(cluster: Path) -> None:
    """Raise EmbeddedServerError for a living server on these data; see to it that a dead one is in nobody's way."""
    began = time.monotonic()
    while lines := _postmaster_lines(cluster):
        pid = int(lines[0])
        if not _lives(pid):
            return  # PostgreSQL looks after the lock file of a dead server itself
        if not _serves(pid, cluster):
            # The pid is another program's by now, which PostgreSQL would take for the server.
            (cluster / "postmaster.pid").unlink(missing_ok=True)
            return
        if time.monotonic() - began > (_LEAVE_WITHIN if _status(lines) == "stopping" else _NOTICE_WITHIN):
            raise EmbeddedServerError(f"a server runs on {cluster} already: process {pid}")
        time.sleep(_POLL)


def _lives(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def _serves(pid: int, cluster: Path) -> bool:
    """Is this living process a server on these data."""
    process = Path("/proc", str(pid))
    if not Path("/proc/self").exists():
        return True
    try:
        try:
            return (process / "cwd").readlink() == cluster  # every server process works inside its data
        except PermissionError:  # another user's, or one that root in a container may not trace
            return (process / "comm").read_text().strip() == "postgres"
    except FileNotFoundError:
        return False  # it has ended


def launcher(as_root: bool) -> list[str | Path]:
    """The command before the server's own: who it runs as, and that it ends with this process."""
    owner = identity() if as_root else {"user": os.getuid(), "group": os.getgid()}
    step = Path(launch.__file__)
    return [sys.executable, "-I", "-S", step, str(os.getpid()), str(owner["user"]), str(owner["group"])]


def identity() -> dict[str, Any]:
    """Arguments of subprocess for a program that runs as root's server does."""
    owner = server_user()
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def environment() -> dict[str, str]:
    """Ours without what would reach into the server: libpq's variables and the locale."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**ours, "LC_ALL": "C"}
