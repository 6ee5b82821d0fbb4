"""The public keys that tokens are checked against, as their files stand: replaced and withdrawn without a restart."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pin.access.signing import KEY_BITS
from pin.config.faults import Fault, SettingsError
from pin.config.secrets import shown_path
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

LOOK_EVERY = 5.0
"""Seconds between two looks at the files: how long a withdrawn key may still count."""
_RULE = f"must be the PEM file of an RSA public key of {KEY_BITS} bits or more"

_Stamp = tuple[int, int, int] | None


class KeyFiles:
    """The keys by `kid`, a file's name without its ending. Safe in any thread.

    Raises SettingsError from the start: no file, two of one stem, or one that is no RSA public key. Later a file that
    is gone or broken withdraws its key, and the log says so (A61).
    """

    def __init__(self, paths: tuple[Path, ...], monotonic: Callable[[], float] = time.monotonic) -> None:
        if not paths:
            raise SettingsError([Fault("auth.public_keys", "", "must name at least one PEM file")])
        stems = [path.stem for path in paths]
        if twice := sorted({stem for stem in stems if stems.count(stem) > 1}):
            rule = f"names two files for the key {twice[0]}: a key's id is its file's name without the ending"
            raise SettingsError([Fault("auth.public_keys", ",".join(map(shown_path, paths)), rule)])
        self._paths = paths
        self._monotonic = monotonic
        self._stamps = {path: _stamp(path) for path in paths}
        self._keys = {path.stem: _public_key(path) for path in paths}
        self._looked = monotonic()
        self._lock = threading.Lock()

    def current(self) -> Mapping[str, rsa.RSAPublicKey]:
        """The keys; the files are looked at again every LOOK_EVERY seconds."""
        if self._monotonic() - self._looked >= LOOK_EVERY and self._lock.acquire(blocking=False):
            try:
                self._look_again()
                self._looked = self._monotonic()
            finally:
                self._lock.release()
        return self._keys

    def _look_again(self) -> None:
        keys = dict(self._keys)
        for path in self._paths:
            stamp = _stamp(path)
            if stamp == self._stamps[path]:
                continue
            try:
                keys[path.stem] = _public_key(path)
            except SettingsError:
                keys.pop(path.stem, None)
                log.error("verification key withdrawn", kid=path.stem)  # noqa: TRY400 - the file says why
            else:
                log.info("verification key replaced", kid=path.stem)
            self._stamps[path] = stamp
        self._keys = keys


def _stamp(path: Path) -> _Stamp:
    """What changes with the file, also where its folder is swapped under it as Kubernetes does."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _public_key(path: Path) -> rsa.RSAPublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        said = f"{_RULE} ({type(error).__name__})"
        raise SettingsError([Fault("auth.public_keys", shown_path(path), said)]) from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < KEY_BITS:
        raise SettingsError([Fault("auth.public_keys", shown_path(path), _RULE)])
    return key
