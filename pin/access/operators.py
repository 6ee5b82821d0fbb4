"""Who may use the operator console: a file of names, roles and password hashes, one operator a line.

    # name:role:hash
    ada:operator:scrypt.32768.8.1.<salt>.<hash>

The hashes are secrets, as a private key is: the file should be readable by the web process alone.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pin.config.faults import Fault, SettingsError
from pin.config.secrets import shown_path

MAX_PASSWORD_LENGTH = 1024

_SETTING = "ops.operators_file"
_COST, _BLOCK, _LANES = 2**15, 8, 1  # 32 MiB and about 60 ms a guess
_MEMORY = 128 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_HASH = re.compile(r"scrypt\.(\d{1,7})\.(\d{1,2})\.(\d{1,2})\.([A-Za-z0-9_-]{22,})\.([A-Za-z0-9_-]{43})")


class Role(StrEnum):
    """What an operator may do: a viewer reads, an operator changes as well."""

    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator."""

    name: str
    role: Role
    password_hash: str = field(repr=False)

    @property
    def line(self) -> str:
        """As the file holds it."""
        return f"{self.name}:{self.role}:{self.password_hash}"


def hash_password(password: str) -> str:
    """`password` as the operators' file holds it: scrypt with a fresh salt, no character that a shell or TOML minds.

    Raises ValueError for an empty password, or one over 1024 characters.
    """
    if not 0 < len(password) <= MAX_PASSWORD_LENGTH:
        raise ValueError(f"a password has 1 to {MAX_PASSWORD_LENGTH} characters")
    salt = secrets.token_bytes(16)
    found = _scrypt(password, salt, _COST, _BLOCK, _LANES)
    return f"scrypt.{_COST}.{_BLOCK}.{_LANES}.{_text(salt)}.{_text(found)}"


def verify_password(password: str, password_hash: str) -> bool:
    """Is it this one; compared in constant time. Costs 32 MiB and tens of milliseconds."""
    match = _HASH.fullmatch(password_hash)
    if match is None or not 0 < len(password) <= MAX_PASSWORD_LENGTH:
        return False
    cost, block, lanes, salt, wanted = match.groups()
    try:
        found = _scrypt(password, _bytes(salt), int(cost), int(block), int(lanes))
    except (ValueError, binascii.Error):  # parameters that scrypt refuses
        return False
    return hmac.compare_digest(found, _bytes(wanted))


def read_operators(path: Path) -> Mapping[str, Operator]:
    """The operators by name. Raises SettingsError, naming the line and never what it holds."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _fault(path, f"must be a readable file ({type(error).__name__})") from None
    found: dict[str, Operator] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        role, _, password_hash = rest.partition(":")
        if not _NAME.fullmatch(name) or role not in set(Role) or not _HASH.fullmatch(password_hash):
            raise _fault(path, f"line {number} is not name:role:hash with role viewer or operator (see `pin operator`)")
        if name in found:
            raise _fault(path, f"line {number} names an operator a second time")
        found[name] = Operator(name, Role(role), password_hash)
    if not found:
        raise _fault(path, "names no operator")
    return found


def make_operator(name: str, role: Role, password: str) -> Operator:
    """An operator with this password. Raises ValueError for a name or a password that cannot be one's."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name has 1 to 64 letters, digits and . _ @ + -, and begins with a letter or a digit")
    return Operator(name, role, hash_password(password))


def _scrypt(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(
        password.encode(errors="replace"), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=32
    )


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _fault(path: Path, rule: str) -> SettingsError:
    return SettingsError([Fault(_SETTING, shown_path(path), rule)])
