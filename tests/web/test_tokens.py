"""What is a valid token, and what is not (A20, G10)."""

import base64
import hashlib
import hmac
import json
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest

from pin.access.checking import Caller, TokenVerifier
from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.access.signing import mint, new_key_pair
from pin.clock import utc_now
from pin.config.faults import SettingsError
from pin.config.sections import AuthOptions
from pin.outgoing.tokens import TokenError
from tests.serving import Keys


@pytest.fixture
def verifier(keys: Keys) -> TokenVerifier:
    return TokenVerifier.from_settings(AuthOptions(public_keys=(keys.public,)))


def signed(keys: Keys, *, drop: str | None = None, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token of client news, signed with the right key, with some claims replaced."""
    now = int(utc_now().timestamp())
    given: dict[str, Any] = {"iss": "pin", "aud": "pin", "sub": "news", "client_id": "news", "iat": now}
    payload = given | {"exp": now + 60} | claims
    payload.pop(drop or "", None)
    # Straight to the signature: PyJWT would refuse to encode some of these.
    return jwt.PyJWS().encode(
        json.dumps(payload).encode(), keys.private.read_bytes(), "RS256", headers={"kid": keys.kid} | (headers or {})
    )


def unsigned(header: Any, payload: Any, signature: bytes = b"") -> str:
    """A token put together by hand."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, signature))


@pytest.mark.req("D2")
def test_the_caller_that_a_token_names(keys: Keys, verifier: TokenVerifier) -> None:
    user, tenant = uuid4(), uuid4()
    assert verifier.verify(keys.token(client="news")) == Caller("news", None, None)
    assert verifier.verify(keys.token(user_id=user, tenant_id=tenant)) == Caller(None, user, tenant)
    a_users = signed(keys, sub=str(user), tenant=str(tenant), client_id="news")
    assert verifier.verify(a_users) == Caller(None, user, tenant), "a user who came by way of news is not news"
    assert verifier.verify(signed(keys, sub=str(user))) == Caller(None, None, None)
    assert verifier.verify(signed(keys, drop="client_id")) == Caller(None, None, None)
    assert verifier.verify(signed(keys, aud=["other", "pin"])).client == "news"
    assert verifier.verify(signed(keys, iat=utc_now().timestamp() + 3)).client == "news", "clocks differ a little"
    assert verifier.verify(signed(keys, exp=utc_now().timestamp() - 3)).client == "news"


WRONG: dict[str, list[Any]] = {
    "exp": [10**50, 1e300, float("inf"), float("nan"), [1], None, "soon", True, -1, 0],
    "iat": [10**50, None, "now", [], 4102444800],
    "nbf": [4102444800, "later", -1],
    "sub": [1, None, ["news"], {}],
    "aud": ["other", ["other"], [], None, 1, [1], {}],
    "iss": ["other", None, ["pin"], "pin\n"],
    "client_id": [1, ["news"]],
    "tenant": ["xyz", 1, str(UUID(int=0)), "11111111-1111-4111-8111-111111111111"],
    "drop": ["exp", "iat", "sub", "iss", "aud"],
}


@pytest.mark.req("G10", "D2")
@pytest.mark.case("A20")
@pytest.mark.parametrize(("claim", "value"), [(claim, value) for claim, values in WRONG.items() for value in values])
def test_claims_that_make_a_token_invalid(keys: Keys, verifier: TokenVerifier, claim: str, value: Any) -> None:
    with pytest.raises(TokenError) as refused:
        verifier.verify(signed(keys, **{claim: value}))
    assert "eyJ" not in str(refused.value), "no error holds a token"
    assert verifier.verify(signed(keys)).client == "news"


@pytest.mark.req("G10", "D2")
@pytest.mark.case("A20")
def test_signatures_and_shapes_that_make_a_token_invalid(keys: Keys, verifier: TokenVerifier, tmp_path: Path) -> None:
    good = signed(keys)
    header, payload, _ = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    confused = unsigned({"alg": "HS256", "kid": keys.kid}, claims)
    secret = keys.public.read_bytes()
    hs256 = hmac.new(secret, confused.rpartition(".")[0].encode(), hashlib.sha256).digest()
    stranger = Keys(*new_key_pair(tmp_path, keys.kid))
    tokens = {
        "alg none": unsigned({"alg": "none", "kid": keys.kid}, claims),
        "alg None": unsigned({"alg": "nOnE", "kid": keys.kid}, claims),
        "HS256 with the public key": unsigned({"alg": "HS256", "kid": keys.kid}, claims, hs256),
        "no alg": unsigned({"kid": keys.kid}, claims),
        "alg is a list": unsigned({"alg": ["RS256"], "kid": keys.kid}, claims),
        "another's key under our kid": signed(stranger),
        "unknown kid": signed(keys, headers={"kid": "other"}),
        "kid climbs folders": signed(keys, headers={"kid": f"../{keys.kid}"}),
        "kid is null": unsigned({"alg": "RS256", "kid": None}, claims),
        "kid is a list": unsigned({"alg": "RS256", "kid": [keys.kid]}, claims),
        "PS256": jwt.encode(claims, keys.private.read_bytes(), "PS256", headers={"kid": keys.kid}),
        "unknown crit": signed(keys, headers={"crit": ["x"], "x": 1}),
        "cut": good[:-4],
        "no signature": f"{header}.{payload}.",
        "two parts": f"{header}.{payload}",
        "empty": "",
        "dots": "..",
        "not base64": "é.é.é",
        "a lone surrogate": "\ud800.x.y",
        "header is a list": unsigned([], claims),
        "header is deep": unsigned(b"[" * 3000, claims),
        "header is no UTF-8": unsigned(b"\xff", claims),
        "too long": signed(keys, pad="x" * 8192),
    }
    accepted = []
    for name, token in tokens.items():
        try:
            verifier.verify(token)
        except TokenError:
            continue
        accepted.append(name)
    assert accepted == []
    deep = jwt.PyJWS().encode(b"[" * 3000, keys.private.read_bytes(), "RS256", headers={"kid": keys.kid})
    with pytest.raises(TokenError):
        verifier.verify(deep)


@pytest.mark.req("D2")
def test_settings_that_cannot_serve_are_refused_by_name(tmp_path: Path, keys: Keys) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", encoding="ascii")
    for paths in ((), (tmp_path / "absent.pem",), (broken,), (keys.private,)):
        with pytest.raises(SettingsError) as refused:
            TokenVerifier.from_settings(AuthOptions(public_keys=paths))
        assert refused.value.faults[0].field == "auth.public_keys"
    with pytest.raises(SettingsError) as none:
        TokenSource.from_settings(AuthOptions())
    assert none.value.faults[0].field == "auth.m2m_private_key"


@pytest.mark.req("D2")
def test_news_signs_its_own_token_and_renews_it_in_time(keys: Keys) -> None:
    moment = [utc_now()]
    auth = AuthOptions(public_keys=(keys.public,), m2m_private_key=keys.private)
    source = TokenSource.from_settings(auth, clock=lambda: moment[0])
    verifier = TokenVerifier.from_settings(auth, clock=lambda: moment[0])
    first = source.token()
    assert verifier.verify(first) == Caller("news", None, None)
    moment[0] += timedelta(minutes=3, seconds=59)
    assert source.token() == first
    moment[0] += timedelta(seconds=1)
    second = source.token()
    assert second != first
    moment[0] -= timedelta(hours=1)
    assert verifier.verify(source.token()).client == "news", "also when the clock was set back"
    moment[0] += timedelta(days=30)
    assert verifier.verify(source.token()).client == "news"


@pytest.mark.req("D2")
def test_a_token_from_a_file_is_read_again_after_a_401(keys: Keys, tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = TokenSource.from_settings(AuthOptions(m2m_token_file=file, m2m_private_key=keys.private))
    with pytest.raises(TokenError):
        source.token()
    file.write_text("one\n", encoding="ascii")
    assert source.token() == "one"
    file.write_text("two", encoding="ascii")
    assert source.token() == "one"
    source.refresh()
    assert source.token() == "two"
    for content in (b"", b" \n", b"a b", b"a\r\nb", "é".encode(), b"x" * 9000):
        file.write_bytes(content)
        source.refresh()
        with pytest.raises(TokenError):
            source.token()


@pytest.mark.req("D2")
def test_a_key_pair_is_for_its_owner_alone(tmp_path: Path) -> None:
    private, public = new_key_pair(tmp_path / "new", "k1")
    assert (private.stem, public.stem) == ("k1", "k1")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert sorted(path.name for path in private.parent.iterdir()) == ["k1.key", "k1.pem"]
    again, _ = new_key_pair(tmp_path / "new", "k1")
    verifier = TokenVerifier.from_settings(AuthOptions(public_keys=(public,)))
    token = mint(
        again.read_bytes(),
        kid="k1",
        issuer="pin",
        audience="pin",
        lifetime=timedelta(seconds=30),
        now=utc_now(),
        client="x",
    )
    assert verifier.verify(token).client == "x"
