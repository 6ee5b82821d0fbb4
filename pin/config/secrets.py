"""Settings that hold a secret, or may: a type for each that cannot print itself (A59, A69).

`SecretUrl` and `SinkUrl` are text to whoever connects by them, and masked to whoever prints, formats or dumps them.
A path is shown only where it is one: a key or a token put there by mistake is refused without its value.
"""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, PlainSerializer

HIDDEN = "***"

_PLAIN_ARGUMENTS = frozenset(
    {
        *(
            "sslmode",
            "sslrootcert",
            "target_session_attrs",
            "connect_timeout",
            "application_name",
            "options",
            "service",
        ),
        *("host", "port", "dbname", "user", "hostaddr", "load_balance_hosts", "keepalives", "gssencmode"),
    }
)
_HOSTS = re.compile(r"[\w.,:\[\]-]*")
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")
_SECRET_SIGNS = re.compile(
    r"-----BEGIN|\beyJ[\w-]{5,}\.|[\0\r\n]|^[^/:\s]+:(?:viewer|operator):|:[^/@\s]+@|\bpass(?:word|wd)?=|\bBearer ",
    re.IGNORECASE,
)
_LONGEST_SHOWN = 120


class SecretUrl(str):
    """A URL whose password and unknown arguments are shown to nobody. Everything but printing sees the whole text."""

    __slots__ = ()

    def _shown(self) -> str:
        return shown_url(str.__str__(self))

    def __str__(self) -> str:
        return self._shown()

    def __repr__(self) -> str:
        return repr(self._shown())

    def __format__(self, spec: str) -> str:
        return format(self._shown(), spec)


class SinkUrl(SecretUrl):
    """A URL that may hold a token anywhere behind its host."""

    __slots__ = ()

    def _shown(self) -> str:
        return shown_url(str.__str__(self), path=False)


Url = Annotated[str, AfterValidator(SecretUrl), PlainSerializer(str, when_used="json")]
"""A setting's type."""
AlertUrl = Annotated[str, AfterValidator(SinkUrl), PlainSerializer(str, when_used="json")]
"""A setting's type."""


def shown_url(text: str, *, path: bool = True) -> str:
    """`text` for people's eyes: scheme, user, host and port, path and the arguments that are known to be no secret.

    Whatever the URL looks like: what cannot be read as one is hidden whole.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return text if _HOST_AND_PORT.fullmatch(text) else HIDDEN
    head, mark, query = rest.partition("?")
    if "@" in query and "@" not in head:  # a password that was not escaped
        head, mark, query = rest, "", ""
    who, at, where = head.rpartition("@")
    if not mark:
        where, mark, query = where.partition("?")
    host, slash, rest_of_path = where.partition("/")
    host = host if _HOSTS.fullmatch(host) else HIDDEN
    if who:
        user, colon, _ = who.partition(":")
        who = (user if re.fullmatch(r"[\w.-]*", user) and path else HIDDEN) + (f":{HIDDEN}" if colon else "")
    if slash and not (path and re.fullmatch(r"[\w.~/-]*", rest_of_path)):
        rest_of_path = HIDDEN if rest_of_path else ""
    arguments = [_argument(one, shown=path) for one in query.split("&")] if mark else []
    return f"{scheme}://{who}{at}{host}{slash}{rest_of_path}{mark}{'&'.join(arguments)}"


def _argument(text: str, *, shown: bool) -> str:
    name, _, value = text.partition("=")
    if shown and name in _PLAIN_ARGUMENTS and not _SECRET_SIGNS.search(value):
        return text
    return f"{name if re.fullmatch(r'[a-z_]{1,40}', name) else HIDDEN}={HIDDEN}"


def looks_secret(text: str) -> bool:
    """Whether it has the form of a key, a token, an operator's line or a URL with a password."""
    return _SECRET_SIGNS.search(text) is not None or len(text) > _LONGEST_SHOWN


def is_evidently_a_path(path: Path) -> bool:
    """Whether it can be shown as a path: it is there, or its folder is, below the root."""
    text = str(path)
    if _SECRET_SIGNS.search(text):
        return False
    try:
        return path.exists() or ("/" in text and path.parent != Path("/") and path.parent.is_dir())
    except (OSError, ValueError):
        return False


def shown_path(path: Path) -> str:
    """The path where it evidently is one."""
    return str(path) if is_evidently_a_path(path) else HIDDEN


def path_of_a_file(path: Path) -> Path:
    """A setting's path. Raises ValueError, without its value, for what has not the form of one."""
    text = str(path)
    if _SECRET_SIGNS.search(text) or len(text) > 4096:  # noqa: PLR2004 - PATH_MAX
        raise ValueError("must be the path of a file, not what the file holds")
    try:
        there = path.exists()
    except (OSError, ValueError):
        there = False
    if not there and "/" not in text:
        raise ValueError("must be the path of a file: nothing of that name is here")
    return path


def folder_path(path: Path) -> Path:
    """A setting's folder. Raises ValueError, without its value, for what has not the form of one."""
    if looks_secret(str(path)) and not is_evidently_a_path(path):
        raise ValueError("must be the path of a folder")
    return path
