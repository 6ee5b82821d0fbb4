"""Bearer tokens, checked: RS256 JWTs against configured public keys.

A user's token names the user in `sub` and the tenant in `tenant`; an m2m token names the client in both `client_id`
and `sub` (as RFC 9068 has it for a client that acts for itself). No text here ever holds a token.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa

from pin.access.key_files import KeyFiles
from pin.access.signing import ALGORITHM
from pin.clock import utc_now
from pin.config.sections import AuthOptions
from pin.outgoing.tokens import MAX_TOKEN_LENGTH, TokenError

_LAST_MOMENT = 253_402_300_799  # the end of the year 9999; a NumericDate beyond it is no date


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a valid token names: a client (m2m), or a user of a tenant, or neither (a valid token that opens nothing)."""

    client: str | None
    user_id: UUID | None
    tenant_id: UUID | None


class _Claims(msgspec.Struct, frozen=True):
    """The claims that are read, strictly typed: a claim of another type makes the token invalid (A20)."""

    iss: str
    sub: str
    aud: str | list[str]
    exp: int | float
    iat: int | float
    nbf: int | float | None = None
    client_id: str | None = None
    tenant: UUID | None = None


class TokenVerifier:
    """Checks tokens against the public keys of the moment, one for each `kid`. Safe in any thread."""

    def __init__(
        self,
        keys: Callable[[], Mapping[str, rsa.RSAPublicKey]],
        *,
        issuer: str,
        audience: str,
        leeway: timedelta,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._keys = keys
        self._issuer, self._audience = issuer, audience
        self._leeway = leeway.total_seconds()
        self._clock = clock
        self._jws = jwt.PyJWS(algorithms=[ALGORITHM])

    @classmethod
    def from_settings(cls, auth: AuthOptions, clock: Callable[[], datetime] = utc_now) -> "TokenVerifier":
        """A verifier of the configured keys. Raises SettingsError as `KeyFiles` does."""
        keys = KeyFiles(auth.public_keys)
        return cls(keys.current, issuer=auth.issuer, audience=auth.audience, leeway=auth.leeway, clock=clock)

    def verify(self, token: str) -> Caller:
        """The caller that `token` names (D2, G10, A20). Raises TokenError for every token that is not valid."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise TokenError("token is too long")
        try:
            kid = self._jws.get_unverified_header(token).get("kid")
            if not isinstance(kid, str) or (key := self._keys().get(kid)) is None:
                raise TokenError("kid names no known key")
            payload = self._jws.decode(token, key, algorithms=[ALGORITHM])
            claims = msgspec.json.decode(payload, type=_Claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenError(f"token is malformed or not signed by a known key ({type(error).__name__})") from None
        self._check(claims)
        return _caller(claims)

    def _check(self, claims: _Claims) -> None:
        now = self._clock().timestamp()
        if any(not 0 <= moment <= _LAST_MOMENT for moment in (claims.exp, claims.iat, claims.nbf or 0)):
            raise TokenError("a date among the claims is out of range")
        if claims.exp + self._leeway <= now:
            raise TokenError("token has expired")
        if max(claims.iat, claims.nbf or 0) - self._leeway > now:
            raise TokenError("token is not valid yet")
        if claims.iss != self._issuer:
            raise TokenError("issuer is another")
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if self._audience not in audiences:
            raise TokenError("audience is another")


def _caller(claims: _Claims) -> Caller:
    """A tenant makes it a user's token, whichever client fetched it: a user never passes for a client."""
    if claims.tenant is not None:
        try:
            user_id = UUID(claims.sub)
        except ValueError:
            raise TokenError("sub is no user id") from None
        if not user_id.int or not claims.tenant.int:
            raise TokenError("user or tenant is the empty id")
        return Caller(None, user_id, claims.tenant)
    return Caller(claims.client_id if claims.client_id == claims.sub else None, None, None)
