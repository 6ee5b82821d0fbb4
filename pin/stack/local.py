"""What the local stack keeps in its state folder: the keys, and the running database's URL."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pin.config.database_url import sealed
from pin.config.settings import Settings

KEY_ID = "local"
OPERATOR = "local"
"""Who signs in to the local stack's console."""


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """The stack's own key pair; `kid` is the files' stem."""

    private: Path
    public: Path


def local_keys(state_dir: Path) -> LocalKeys:
    """Where the pair lies, made or not."""
    folder = state_dir.absolute() / "keys"
    return LocalKeys(folder / f"{KEY_ID}.key", folder / f"{KEY_ID}.pem")


def ensure_keys(state_dir: Path) -> LocalKeys:
    """The pair, made at the first start and kept."""
    keys = local_keys(state_dir)
    if not (keys.private.exists() and keys.public.exists()):
        from pin.access.signing import new_key_pair

        new_key_pair(keys.private.parent, KEY_ID)
    return keys


def new_operator(state_dir: Path) -> tuple[Path, str, str]:
    """An operator of the console with a fresh password: the operators' file, the name, the password.

    Made anew at each start, so that no password is kept; older sessions end with it.
    """
    import secrets

    from pin.access.operators import Role, make_operator

    password = secrets.token_urlsafe(12)
    operator = make_operator(OPERATOR, Role.OPERATOR, password)
    path = state_dir.absolute() / "operators"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{operator.line}\n")
    return path, operator.name, password


@contextmanager
def published_database(state_dir: Path, url: str) -> Iterator[None]:
    """While the block runs, `pin` commands of this checkout find the stack's database by themselves."""
    path = _url_file(state_dir)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(url)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def database_url(settings: Settings) -> str:
    """The configured database; where none is configured, the running local stack's, if there is one."""
    if "database_url" not in settings.model_fields_set:
        with contextlib.suppress(OSError):
            return sealed(_url_file(settings.state_dir).read_text(encoding="utf-8").strip())
    return settings.database_url


def _url_file(state_dir: Path) -> Path:
    return state_dir.absolute() / "database-url"
