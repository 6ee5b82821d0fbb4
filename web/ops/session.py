"""Who is signed in: a signed cookie, and what a form must carry to count.

Nothing is stored. The cookie is signed with a key derived from the operator's own line in the operators' file, so that
every replica accepts it, and a changed password, a changed role or a removed line ends that operator's sessions.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from pin.access.operators import Operator, Role

COOKIE = "pin_ops"

_MAX_COOKIE = 1024


@dataclass(frozen=True, slots=True)
class Session:
    """An operator who is signed in. `csrf` is what each of the session's forms carries."""

    operator: Operator
    csrf: str

    @property
    def may_change(self) -> bool:
        """Viewers read; operators change."""
        return self.operator.role is Role.OPERATOR


class _Claims(msgspec.Struct, frozen=True):
    name: str
    ends: int
    nonce: str


def open_session(operator: Operator, now: datetime, lifetime: timedelta) -> str:
    """The cookie of a new session of this operator."""
    claims = _Claims(operator.name, int((now + lifetime).timestamp()), secrets.token_urlsafe(16))
    payload = _text(msgspec.json.encode(claims))
    return f"{payload}.{_text(_sign(operator, 'session', payload))}"


def read_session(cookie: str | None, operators: Mapping[str, Operator], now: datetime) -> Session | None:
    """Whose session it is; None when it is none, has ended, or its operator has changed."""
    if not cookie or len(cookie) > _MAX_COOKIE:
        return None
    payload, _, signature = cookie.partition(".")
    try:
        claims = msgspec.json.decode(_bytes(payload), type=_Claims)
        given = _bytes(signature)
    except (msgspec.MsgspecError, binascii.Error, ValueError):
        return None
    operator = operators.get(claims.name)
    if operator is None or not hmac.compare_digest(given, _sign(operator, "session", payload)):
        return None
    if claims.ends <= now.timestamp():
        return None
    return Session(operator, _text(_sign(operator, "form", payload)))


def _sign(operator: Operator, purpose: str, payload: str) -> bytes:
    return hmac.digest(hashlib.sha256(operator.line.encode()).digest(), f"{purpose}.{payload}".encode(), "sha256")


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
