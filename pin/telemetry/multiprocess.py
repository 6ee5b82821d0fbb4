"""Several worker processes under one command count in files of one folder, and one of them serves the sums.

prometheus-client decides that on import, so the folder stands in the environment before Python starts: `pin worker`
makes it, wipes what its predecessors left and becomes `dramatiq` (docs/decisions/0113).
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "pin-metrics-"


def fresh_folder(parent: Path | None = None) -> Path:
    """An empty folder of this user's alone, named after this process; those of processes that are gone are removed.

    A process that becomes another by exec keeps its id, and so its folder. Raises OSError where none can be made.
    """
    place = parent or Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            owner = int(left.name.removeprefix(_PREFIX).split("-")[0])
            if left.stat().st_uid == os.getuid() and (owner == os.getpid() or not _is_alive(owner)):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))


def ensure_folder(folder: Path) -> bool:
    """Whether the folder was gone, as after a cleaner of temporary files, and had to be made again."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError:  # it is there; or it cannot be made, which the library will say when it needs it
        return False
    return True


def serves_for_all(folder: Path) -> bool:
    """Whether it falls to this process to serve the folder's sums: to the first that asks, until it ends."""
    descriptor = os.open(folder / "serving.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True  # the descriptor stays open, and the lock with it, as long as the process lives


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
