"""News' own m2m token: asked of a token endpoint, read from a file that something else renews, or signed here."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import jwt

from pin.access.signing import mint
from pin.access.token_endpoint import fetch_token
from pin.clock import utc_now
from pin.config.faults import Fault, SettingsError
from pin.config.sections import AuthOptions
from pin.outgoing.tokens import MAX_TOKEN_LENGTH, TokenError
from pin.rules.contract import NEWS_CLIENT

M2M_LIFETIME = timedelta(minutes=5)

_RENEWAL = timedelta(minutes=1)  # a token this close to its end is replaced, so that none ends on the way
_AFTER_FAILURE = 1.0  # seconds in which an endpoint that has just failed is not asked again


class MachineTokens:
    """A `pin.outgoing.tokens.TokenSource`. Thread-safe: `token` may block while fetching, `at_hand` never does."""

    def __init__(
        self,
        renew: Callable[[], tuple[str, datetime | None]],
        clock: Callable[[], datetime],
        *,
        after_failure: float = 0.0,
    ) -> None:
        self._renew, self._clock, self._after_failure = renew, clock, after_failure
        self._lock = threading.Lock()
        self._token: str | None = None
        self._had_at: datetime | None = None
        self._renew_at: datetime | None = None
        self._failed: tuple[float, TokenError] | None = None

    @classmethod
    def from_settings(cls, auth: AuthOptions, clock: Callable[[], datetime] = utc_now) -> "MachineTokens":
        """The source that the settings name: endpoint before file before key. Raises SettingsError when they name none.

        Secret, file and key are read at each renewal, so that each may be replaced while the process runs.
        """
        if (url := auth.token_url) is not None and (secret := auth.client_secret_file) is not None:
            return cls(lambda: _granted(url, auth.client_id, secret, clock()), clock, after_failure=_AFTER_FAILURE)
        if (file := auth.m2m_token_file) is not None:
            return cls(lambda: (_token_from(file), None), clock)
        if (path := auth.m2m_private_key) is not None:
            return cls(lambda: _minted(auth, path, clock()), clock)
        rule = "or auth.m2m_token_file or auth.token_url must be set where news runs"
        raise SettingsError([Fault("auth.m2m_private_key", None, rule)])

    def token(self) -> str:
        """A token to send, the same one until shortly before it ends. Raises TokenError when none can be had."""
        with self._lock:
            if self._token is None or self._is_due(self._clock()):
                self._token = self._new()
            return self._token

    def at_hand(self) -> str | None:
        """The token that `token` would answer at once, None when it would have to fetch one (or is fetching it)."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return None if self._is_due(self._clock()) else self._token
        finally:
            self._lock.release()

    def refresh(self) -> None:
        """Forget the token that was answered 401; the next `token()` has a new one."""
        with self._lock:
            self._token = None

    def _new(self) -> str:
        if self._failed is not None and time.monotonic() - self._failed[0] < self._after_failure:
            raise self._failed[1]
        now = self._clock()
        try:
            token, ends = self._renew()
        except TokenError as error:
            self._failed = time.monotonic(), error
            raise
        self._failed = None
        self._had_at, self._renew_at = now, ends - min(_RENEWAL, (ends - now) / 4) if ends else None
        return token

    def _is_due(self, now: datetime) -> bool:
        # A clock that was set back would leave a token from the future: that one is renewed as well.
        over = self._renew_at is not None and now >= self._renew_at
        return over or (self._had_at is not None and now < self._had_at)


def _minted(auth: AuthOptions, path: Path, now: datetime) -> tuple[str, datetime]:
    try:
        token = mint(
            path.read_bytes(),
            kid=path.stem,
            issuer=auth.issuer,
            audience=auth.audience,
            lifetime=M2M_LIFETIME,
            now=now,
            client=NEWS_CLIENT,
        )
    except (OSError, ValueError, TypeError, jwt.PyJWTError) as error:
        raise TokenError(f"no token from the private key ({type(error).__name__})") from None
    return token, now + M2M_LIFETIME


def _granted(url: str, client_id: str, secret_file: Path, now: datetime) -> tuple[str, datetime | None]:
    try:
        token, lifetime = fetch_token(url, client_id, secret_file)
    except (OSError, ValueError) as error:
        raise TokenError(f"no token from the endpoint ({type(error).__name__})") from None
    return _sendable(token, "the token endpoint"), now + lifetime if lifetime is not None else None


def _token_from(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise TokenError(f"no token from the file ({type(error).__name__})") from None
    return _sendable(token, "the token file")


def _sendable(token: str, source: str) -> str:
    if not token or len(token) > MAX_TOKEN_LENGTH or any(not " " < char <= "~" for char in token):
        raise TokenError(f"{source} holds no token")
    return token
