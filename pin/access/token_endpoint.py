"""A machine token from an OAuth 2.0 token endpoint, by client credentials (RFC 6749, 4.4)."""

import base64
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote_plus, urlencode

import msgspec

from pin.outgoing.client import post
from pin.outgoing.errors import OutgoingError, TookTooLong

TIMEOUT = 5.0
"""Seconds, in total, that the endpoint may take (A4)."""
_MOST_BYTES = 64 * 1024
_OK = 200
_LONGEST = timedelta(days=1)


class _Granted(msgspec.Struct):
    access_token: str
    token_type: str
    expires_in: int | float | None = None


def fetch_token(
    url: str, client_id: str, secret_file: Path, *, timeout: float = TIMEOUT
) -> tuple[str, timedelta | None]:
    """The token, and how long it is good for where the endpoint says so. Blocks at most `timeout` seconds.

    The secret is read each time, so that it may be replaced. Raises OSError or ValueError, whose texts hold neither
    the secret nor anything of the answer. The answer is read to its end, in however many pieces it comes (A58).
    """
    secret = secret_file.read_text(encoding="utf-8").strip()
    # Each form-encoded before it is joined by the colon, as the RFC has it (2.3.1).
    credentials = base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
    body = _ask(url, credentials, timeout)
    try:
        granted = msgspec.json.decode(body, type=_Granted)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise ValueError("the token endpoint's answer is no grant") from None
    if granted.token_type.lower() != "bearer":
        raise ValueError("the token endpoint grants no bearer token")
    seconds = granted.expires_in
    if seconds is None or not seconds > 0:
        return granted.access_token, None
    return granted.access_token, timedelta(seconds=min(seconds, _LONGEST.total_seconds()))


def _ask(url: str, credentials: str, timeout: float) -> bytes:
    headers = {"authorization": f"Basic {credentials}", "content-type": "application/x-www-form-urlencoded"}
    asked = urlencode({"grant_type": "client_credentials"}).encode()
    try:
        answer = post(url, asked, headers, deadline=time.monotonic() + timeout, cap=_MOST_BYTES)
    except TookTooLong:
        raise ConnectionError("the token endpoint took too long") from None
    except OutgoingError as error:
        raise ConnectionError(f"the token endpoint did not answer ({error})") from None
    if answer.status != _OK:
        raise ConnectionError(f"the token endpoint answered {answer.status}")
    return answer.body
