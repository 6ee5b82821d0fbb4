"""Tokens, signed, and the keys that sign them: the local stack's, the demo's, and news' own m2m tokens."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ALGORITHM = "RS256"
KEY_BITS = 2048


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
    private = rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
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
