"""News' own m2m token: asked of a token endpoint, read from a file that something else renews, or signed here."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

M2M_LIFETIME = timedelta(minutes=5)

_RENEWAL = timedelta(minutes=1)  # a token this close to its end is replaced, so that none ends on the way
_READ_AGAIN = timedelta(seconds=10)  # a token file that something else renews is looked at this often
_AFTER_FAILURE = 1.0  # seconds in which an endpoint that has just failed is not asked again
_AFTER_REFUSAL = 5.0  # seconds in which a token that was fetched because of a 401 is not replaced because of another

Renewed = tuple[str, datetime | None]
"""A new token, and when it ends where that is known."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The token we have. `refused`: it was answered 401."""

    token: str
    had_at: datetime
    renew_at: datetime | None
    ends: datetime | None
    refused: bool = False

    def is_due(self, now: datetime) -> bool:
        """Whether it is time for another: also where the clock was set back, which leaves a token from the future."""
        return now < self.had_at or (self.renew_at is not None and now >= self.renew_at)

    def is_valid(self, now: datetime) -> bool:
        """Whether it may still be sent, as far as we know."""
        return not self.refused and (self.ends is None or now < self.ends)


class MachineTokens:
    """A `pin.outgoing.tokens.TokenSource`. Thread-safe: `token` may block while fetching, `at_hand` never does.

    A token is used to its end while its renewal fails. An endpoint is not asked again right after it failed, nor for
    each of many calls that are answered 401 (A61).
    """

    def __init__(
        self,
        renew: Callable[[], Renewed],
        clock: Callable[[], datetime],
        *,
        after_failure: float = 0.0,
        after_refusal: float = 0.0,
        read_again: timedelta | None = None,
    ) -> None:
        self._renew, self._clock = renew, clock
        self._after_failure, self._after_refusal, self._read_again = after_failure, after_refusal, read_again
        self._renewing = threading.Lock()
        self._held: _Held | None = None
        self._failed: tuple[float, TokenError] | None = None
        self._replaced_at: float | None = None

    @classmethod
    def from_settings(cls, auth: AuthOptions, clock: Callable[[], datetime] = utc_now) -> "MachineTokens":
        """The source that the settings name: endpoint before file before key. Raises SettingsError when they name none.

        Secret, file and key are read at each renewal, so that each may be replaced while the process runs.
        """
        if (url := auth.token_url) is not None and (secret := auth.client_secret_file) is not None:
            return cls(
                lambda: _granted(url, auth.client_id, secret, clock()),
                clock,
                after_failure=_AFTER_FAILURE,
                after_refusal=_AFTER_REFUSAL,
            )
        if (file := auth.m2m_token_file) is not None:
            return cls(lambda: (_token_from(file), None), clock, read_again=_READ_AGAIN)
        if (path := auth.m2m_private_key) is not None:
            return cls(lambda: _minted(auth, path, clock()), clock)
        rule = "or auth.m2m_token_file or auth.token_url must be set where news runs"
        raise SettingsError([Fault("auth.m2m_private_key", None, rule)])

    def token(self) -> str:
        """A token to send, the same one until shortly before it ends. Raises TokenError when none can be had."""
        if (known := self.at_hand()) is not None:
            return known
        with self._renewing:
            if (known := self._usable(renewing=False)) is not None:  # another thread has fetched it meanwhile
                return known
            return self._new()

    def at_hand(self) -> str | None:
        """The token that `token` would answer at once, None when it would have to fetch one first."""
        return self._usable(renewing=self._renewing.locked())

    def refresh(self) -> None:
        """The token was answered 401: the next `token()` has another, unless one was fetched for that just now."""
        held = self._held
        if held is not None:
            self._held = replace(held, refused=True)

    def _usable(self, *, renewing: bool) -> str | None:
        """The token we have, unless it must be renewed first; `renewing`: somebody is at it."""
        held = self._held
        if held is None:
            return None
        if held.refused:
            lately = self._replaced_at is not None and time.monotonic() - self._replaced_at < self._after_refusal
            return held.token if lately else None
        now = self._clock()
        if not held.is_due(now):
            return held.token
        spared = renewing or self._failure() is not None
        return held.token if spared and held.is_valid(now) else None

    def _failure(self) -> TokenError | None:
        """Why the last renewal failed, where that was just now."""
        if self._failed is None or time.monotonic() - self._failed[0] >= self._after_failure:
            return None
        return self._failed[1]

    def _new(self) -> str:
        if (failure := self._failure()) is not None:
            raise failure
        now, held = self._clock(), self._held
        try:
            token, ends = self._renew()
        except TokenError as error:
            self._failed = time.monotonic(), error
            if held is not None and held.is_valid(now):
                log.warning("token not renewed", error=str(error))
                return held.token
            raise
        self._failed = None
        if held is not None and held.refused:
            self._replaced_at = time.monotonic()
        renew_at = ends - min(_RENEWAL, (ends - now) / 4) if ends else None
        if self._read_again is not None:
            renew_at = now + self._read_again
        self._held = _Held(token, now, renew_at, ends)
        return token


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
