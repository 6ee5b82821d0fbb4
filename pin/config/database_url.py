"""The one reading of `database_url`: libpq's own, with the bounds that every process keeps to (G28, A30, A35).

psycopg is imported where it is asked: reading settings needs no driver.
"""

import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

_SCHEMES = ("postgresql://", "postgres://")
_WRITABLE = ("read-write", "primary")
_OURS = {"client_encoding": "UTF8", "target_session_attrs": "primary"}
"""Every process writes, so none is content with a standby; `primary` alone asks nothing of the role's settings."""

_NEUTRAL = {
    "require_auth": "!none",
    "sslcertmode": "allow",
    "min_protocol_version": "3.0",
    "max_protocol_version": "latest",
}
"""Values that ask for nothing, of parameters that take no empty one."""

_PATIENCE_OF_ONE = "5"
_PATIENCE_OF_SEVERAL = "2"
"""Seconds for a connection. One host of several that swallows packets must not use up the time of the next."""

_NOTICE_A_DEAD_PEER = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}


def url_fault(url: str) -> str | None:
    """Why no process could connect by this URL, None when all could. Never repeats the URL, which may hold a password.

    Only the form is looked at: no name is resolved and nothing is connected to.
    """
    if not url.startswith(_SCHEMES):
        return "must start with postgresql://"
    if unknown := [name for name in _query(url) if name not in _known()]:
        return f"has a parameter that PostgreSQL's client library does not know: {unknown[0]}"
    given = _read(url)
    if given is None:
        return "must read postgresql://user:password@host:port/database?name=value, with % and @ of a password encoded"
    if given.get("target_session_attrs", _WRITABLE[0]) not in _WRITABLE:
        return "must have target_session_attrs=read-write, primary or none: every process writes"
    if "replication" in given:
        return "must not have replication: it makes sessions that run no statements"
    return _fault_of_places(given)


def parameters(url: str, application_name: str) -> dict[str, str]:
    """What libpq is to be given for this URL, by its own names.

    The shell's PG* variables fill what is left open here. A PGSERVICE or PGHOSTADDR in the shell names a server: it
    has no say where the URL names one. Raises ValueError as `url_fault` says.
    """
    if fault := url_fault(url):
        raise ValueError(f"the database's URL {fault}")
    given = _read(url) or {}
    several = "," in given.get("host", "") or "," in given.get("hostaddr", "")
    patience = {"connect_timeout": _PATIENCE_OF_SEVERAL if several else _PATIENCE_OF_ONE}
    found = patience | _NOTICE_A_DEAD_PEER | given | _OURS | {"application_name": application_name}
    if given.get("host") and "service" not in given:
        found.setdefault("hostaddr", "")
        # libpq looks for a service before anything else and has no word for "none".
        os.environ.pop("PGSERVICE", None)
    return found


def sealed(url: str) -> str:
    """The URL with all that this process's PG* variables would fill set to libpq's defaults: nothing is left open.

    For a server of our own, whose URL is known to be whole (A35).
    """
    given = {**(_read(url) or {}), **_OURS, "service": "", "application_name": ""}
    filled = {
        name: default
        for name, (variable, default) in _known().items()
        if variable and variable in os.environ and name not in given
    }
    if not filled:
        return url
    joint = "&" if "?" in url else "?"
    return url + joint + "&".join(f"{name}={quote(value, safe='')}" for name, value in filled.items())


def _fault_of_places(given: Mapping[str, str]) -> str | None:
    hosts, addresses, ports = (given.get(name, "").split(",") for name in ("host", "hostaddr", "port"))
    if given.get("hostaddr") and given.get("host") and len(hosts) != len(addresses):
        return "must have as many addresses in hostaddr as it has hosts"
    if len(ports) not in {1, max(len(hosts), len(addresses))}:
        return "must have one port, or one for each host"
    if not all(port == "" or (port.isascii() and port.isdigit() and 0 < int(port) < 65536) for port in ports):  # noqa: PLR2004 - the ports there are
        return "must have ports from 1 to 65535"
    return None


def _read(url: str) -> dict[str, str] | None:
    from psycopg import Error
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except (Error, UnicodeError):
        return None


def _query(url: str) -> list[str]:
    try:
        return [name for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)]
    except ValueError:
        return []


def _known() -> dict[str, tuple[str | None, str]]:
    """The client library's parameters: the variable that fills each, and its default. `ssl` is known in URLs alone."""
    from psycopg import pq

    defaults = {
        (name := one.keyword.decode()): (
            one.envvar.decode() if one.envvar else None,
            _NEUTRAL.get(name, (one.compiled or b"").decode()),
        )
        for one in pq.Conninfo.get_defaults()
    }
    return defaults | {"ssl": (None, "")}
