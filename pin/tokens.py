"""Bearer tokens: RS256 JWTs, checked against configured keys, and the m2m tokens that news signs for itself.

A user's token names the user in `sub` and the tenant in `tenant`; an m2m token names the client in both `client_id`
and `sub` (as RFC 9068 has it for a client that acts for itself). No text here ever holds a token.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import jwt
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pin.clock import utc_now
from pin.contract import NEWS_CLIENT
from pin.settings import AuthOptions
from pin.settings_faults import Fault, SettingsError
from pin.token_endpoint import fetch_token

ALGORITHM = "RS256"
MAX_TOKEN_LENGTH = 8 * 1024
M2M_LIFETIME = timedelta(minutes=5)

_KEY_BITS = 2048
_LAST_MOMENT = 253_402_300_799  # the end of the year 9999; a NumericDate beyond it is no date
_RENEWAL = timedelta(minutes=1)  # a token this close to its end is replaced, so that none ends on the way
_AFTER_FAILURE = 1.0  # seconds in which an endpoint that has just failed is not asked again


class TokenError(Exception):
    """The token is not valid, or none can be had. The message is safe to log."""


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
    """Checks tokens against public keys, one for each `kid`. Immutable, so safe in any thread."""

    def __init__(
        self,
        keys: Mapping[str, rsa.RSAPublicKey],
        *,
        issuer: str,
        audience: str,
        leeway: timedelta,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._keys = dict(keys)
        self._issuer, self._audience = issuer, audience
        self._leeway = leeway.total_seconds()
        self._clock = clock
        self._jws = jwt.PyJWS(algorithms=[ALGORITHM])

    @classmethod
    def from_settings(cls, auth: AuthOptions, clock: Callable[[], datetime] = utc_now) -> "TokenVerifier":
        """A verifier of the configured keys. Raises SettingsError when there is none, or one is no RSA public key."""
        if not auth.public_keys:
            raise SettingsError([Fault("auth.public_keys", "", "must name at least one PEM file")])
        keys = {path.stem: _public_key(path) for path in auth.public_keys}
        return cls(keys, issuer=auth.issuer, audience=auth.audience, leeway=auth.leeway, clock=clock)

    def verify(self, token: str) -> Caller:
        """The caller that `token` names (D2, G10, A20). Raises TokenError for every token that is not valid."""
        if len(token) > MAX_TOKEN_LENGTH:
            raise TokenError("token is too long")
        try:
            kid = self._jws.get_unverified_header(token).get("kid")
            if not isinstance(kid, str) or (key := self._keys.get(kid)) is None:
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


class TokenSource:
    """News' own m2m token: asked of a token endpoint, read from a file that something else renews, or signed here.

    Thread-safe. `token` may block while a new one is fetched; `at_hand` never does.
    """

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
    def from_settings(cls, auth: AuthOptions, clock: Callable[[], datetime] = utc_now) -> "TokenSource":
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


def mint(
    private_key_pem: bytes,
    *,
    kid: str,
    issuer: str,
    audience: str,
    lifetime: timedelta,
    now: datetime,
    client: str | None = None,
    user_id: UUID | None = None,
    tenant_id: UUID | None = None,
) -> str:
    """A signed token from `now` on for `lifetime`: of `client` (m2m), or of a user of a tenant."""
    issued = int(now.timestamp())
    claims: dict[str, object] = {"iss": issuer, "aud": audience, "iat": issued}
    claims["exp"] = issued + max(int(lifetime.total_seconds()), 1)
    claims["sub"] = client if client is not None else str(user_id)
    if client is not None:
        claims["client_id"] = client
    if tenant_id is not None:
        claims["tenant"] = str(tenant_id)
    return jwt.encode(claims, private_key_pem, algorithm=ALGORITHM, headers={"kid": kid})


def new_key_pair(directory: Path, kid: str) -> tuple[Path, Path]:
    """Make an RSA pair: `{kid}.key`, which only its owner may read, and `{kid}.pem`; answers (private, public).

    The private key appears last and whole: where it stands, the pair is complete. An older pair is replaced.
    """
    private = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    directory.mkdir(parents=True, exist_ok=True)
    private_path, public_path = directory / f"{kid}.key", directory / f"{kid}.pem"
    public_path.write_bytes(
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    unfinished = directory / f".{kid}.key.{os.getpid()}"
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    unfinished.replace(private_path)
    return private_path, public_path


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


def _public_key(path: Path) -> rsa.RSAPublicKey:
    rule = f"must be the PEM file of an RSA public key of {_KEY_BITS} bits or more"
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SettingsError([Fault("auth.public_keys", path, f"{rule} ({type(error).__name__})")]) from None
    if not isinstance(key, rsa.RSAPublicKey) or key.key_size < _KEY_BITS:
        raise SettingsError([Fault("auth.public_keys", path, rule)])
    return key


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
