"""Bounds of time and memory that hold whatever the other side, the resolver or our own loop does (A4, A58, A60)."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self
from uuid import UUID

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pin.outgoing import client as other_way_out
from pin.outgoing.client import HttpClient, post
from pin.outgoing.errors import OutgoingError
from pin.outgoing.selections import SelectionsClient
from pin.rules.outbox import Verdict
from tests.client.conftest import MakeClient, Tokens, detach, detach_one
from tests.fake_selections import (
    JSON,
    Call,
    Close,
    Endless,
    FakeSelections,
    Gate,
    Reset,
    Script,
    detached,
    reply,
    trickling,
)
from tests.waiting import eventually

HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
HEAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n"
_LIMIT = 0.75
_LATE = 2.0
"""Seconds that a busy machine may add to a deadline."""
_FLAT = 96 * 1024 * 1024


def said(fake: FakeSelections, script: Script, within: float = 5.0) -> str:
    """What comes of the other way out: status and length, or the class of the error."""
    fake.answer = lambda _: script
    began = time.monotonic()
    try:
        answer = post(fake.url, b"{}", {}, deadline=began + within, cap=1000)
    except OutgoingError as error:
        return str(error)
    else:
        return f"{answer.status} {len(answer.body)}"
    finally:
        assert time.monotonic() - began < within + _LATE


def hot(fake: FakeSelections, client: SelectionsClient, script: Script) -> str | None:
    """The error of a detach call that is answered so."""
    fake.answer = lambda _: script
    return detach_one(client).error


class _Peak:
    """The highest resident memory of this process since the start of the block, in bytes (Linux)."""

    def __enter__(self) -> Self:
        Path("/proc/self/clear_refs").write_text("5")
        self._began = self._high()
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = self._high() - self._began

    def _high(self) -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.mark.req("J14", "J17")
@pytest.mark.case("A60", "A4")
def test_endless_informational_answers_end_at_the_deadline_in_flat_memory_and_lose_no_outcome(
    fake: FakeSelections, client: SelectionsClient
) -> None:
    detach_one(client)
    fake.answer = lambda _: [Endless(HINT * 500)]
    with _Peak() as peak:
        began = time.monotonic()
        replies = detach(client, 20, call_timeout=_LIMIT)
        took = time.monotonic() - began
    assert [found.error if found else None for found in replies] == ["TIMEOUT"] * 20
    assert _LIMIT * 0.9 <= took < _LIMIT + _LATE
    assert peak.grown < _FLAT
    fake.answer = detached
    eventually(lambda: detach_one(client).verdict is Verdict.DETACHED, within=30)  # the client goes on


@pytest.mark.req("J14")
@pytest.mark.case("A60", "A6")
@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param([HEAD, Endless(b"Name: value\r\n" * 1000)], "INVALID_RESPONSE", id="headers"),
        pytest.param([HEAD + b"Name: ", Endless(b"x" * 65536)], "INVALID_RESPONSE", id="one header"),
        pytest.param([b"HTTP/1.1 200 ", Endless(b"x" * 65536)], "INVALID_RESPONSE", id="status line"),
        pytest.param([HEAD + b"\r\n", Endless(b"x" * 65536)], "HTTP 500", id="body"),
        pytest.param(
            [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", Endless(b"1\r\nx\r\n" * 9000)], "HTTP 500", id="chunks"
        ),
    ],
)
def test_whatever_has_no_end_is_read_up_to_a_bound(
    fake: FakeSelections, client: SelectionsClient, script: Script, error: str
) -> None:
    with _Peak() as peak:
        assert hot(fake, client, script) == error
        assert said(fake, script) == ("500 1000" if error == "HTTP 500" else error)
        assert said(fake, [Endless(HINT * 500)]) == "INVALID_RESPONSE"
    assert peak.grown < _FLAT


@pytest.mark.req("J14")
@pytest.mark.case("A4")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(trickling([bytes([byte]) for byte in HEAD[:40]], 0.1), id="status line"),
        pytest.param([HEAD, *trickling([b"X-A: b\r\n"] * 40, 0.1)], id="headers"),
        pytest.param([HEAD + b"Content-Length: 40\r\n\r\n", *trickling([b"x"] * 40, 0.1)], id="body"),
        pytest.param(trickling([HINT] * 40, 0.1), id="1xx"),
        pytest.param([Gate()], id="silence"),
    ],
)
def test_a_trickle_meets_the_total_deadline_on_either_way_out(
    fake: FakeSelections, client: SelectionsClient, script: Script
) -> None:
    detach_one(client)
    fake.answer = lambda _: script
    began = time.monotonic()
    assert detach_one(client, call_timeout=_LIMIT).error == "TIMEOUT"
    assert _LIMIT * 0.9 <= time.monotonic() - began < _LIMIT + _LATE
    assert said(fake, script, within=_LIMIT) == "TIMEOUT"


@pytest.mark.req("J14")
@pytest.mark.case("A58")
@pytest.mark.parametrize("chunked", [False, True])
def test_an_answer_in_pieces_is_read_to_its_end(fake: FakeSelections, client: SelectionsClient, chunked: bool) -> None:
    def pieces(call: Call) -> Script:
        (whole,) = detached(call)
        assert isinstance(whole, bytes)
        _, _, body = whole.partition(b"\r\n\r\n")
        parts = [body[at : at + 7] for at in range(0, len(body), 7)]
        framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\n{framing}\r\n\r\n".encode()
        if chunked:
            parts = [f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts] + [b"0\r\n\r\n"]
        return [head, *trickling(parts, 0.01)[:-1]]

    fake.answer = pieces
    assert detach_one(client).verdict is Verdict.DETACHED


@pytest.mark.req("J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param([Close()], "NETWORK", id="closed without a word"),
        pytest.param([Reset()], "NETWORK", id="reset"),
        pytest.param([HEAD, Reset()], "NETWORK", id="reset in the headers"),
        pytest.param([HEAD + b"Content-Length: 40\r\n\r\nab", Reset()], "NETWORK", id="reset in the body"),
        pytest.param([HEAD + b"Content-Length: 40\r\n\r\nab", Close()], "NETWORK", id="shorter than its length"),
        pytest.param(
            [HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", Close()], "NETWORK", id="chunk that is cut short"
        ),
        pytest.param(
            [HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", Close()], "NETWORK", id="chunks without an end"
        ),
        pytest.param(
            [HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"], "INVALID_RESPONSE", id="two lengths"
        ),
        pytest.param([HEAD + b"A: " + b"b" * 900_000 + b"\r\n\r\n", Close()], "INVALID_RESPONSE", id="huge header"),
        pytest.param([HEAD + b"A: b\r\n" * 500 + b"\r\n", Close()], "INVALID_RESPONSE", id="many headers"),
        pytest.param([b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"], "INVALID_RESPONSE", id="204"),
    ],
)
def test_each_way_that_an_answer_breaks_has_its_class(
    fake: FakeSelections, client: SelectionsClient, script: Script, error: str
) -> None:
    assert hot(fake, client, script) == error
    fake.answer = detached
    assert detach_one(client).verdict is Verdict.DETACHED
    if error == "NETWORK":
        assert said(fake, script) == error


@pytest.mark.req("J17")
@pytest.mark.case("A5")
def test_resets_in_mid_batch_cost_their_own_calls_alone(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda call: [Reset()] if UUID(call.path.split("/")[-2]).int % 3 == 0 else detached(call)
    errors = [found.error if found else "not called" for found in detach(client, 60)]
    assert errors == ["NETWORK" if number % 3 == 0 else None for number in range(1, 61)]


@pytest.mark.req("J14")
@pytest.mark.case("A60", "A4")
def test_a_loop_that_does_not_turn_delays_no_caller(fake: FakeSelections, make_client: MakeClient) -> None:
    stuck, goes_on = threading.Event(), threading.Event()

    class Holding(Tokens):
        def at_hand(self) -> str | None:
            if stuck.is_set() and threading.current_thread().name == "selections-client":
                goes_on.wait(20)
            return super().at_hand()

    client = make_client(concurrency=4, tokens=Holding())
    detach_one(client)
    stuck.set()
    try:
        began = time.monotonic()
        replies = detach(client, 8, call_timeout=_LIMIT / 2, within=20)
        took = time.monotonic() - began
    finally:
        goes_on.set()
    assert took < _LIMIT + _LATE
    assert [found.error if found else None for found in replies] == ["TIMEOUT", *[None] * 7]
    stuck.clear()
    assert detach_one(client).verdict is Verdict.DETACHED
    assert len(fake.calls) <= 3, "what the caller was told was not called is not called afterwards"


def _signed(name: str, issuer: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey) -> bytes:
    """A certificate in PEM: an authority's where it signs itself, else one for 127.0.0.1."""
    now, authority = datetime.now(UTC), name == issuer
    subject, signer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, issuer))
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(signer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    if not authority:
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(by, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _authority(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """An authority's certificate, and the context of a server that has one of its."""
    root, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, certificate, private = folder / "authority.pem", folder / "certificate.pem", folder / "key.pem"
    authority.write_bytes(_signed("authority", "authority", root, root))
    certificate.write_bytes(_signed("server", "authority", own, root))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    private.write_bytes(own.private_bytes(encoding, form, serialization.NoEncryption()))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, private)
    return authority, context


@pytest.fixture
def trusted_anew() -> Iterator[Callable[[], None]]:
    """Has the system's authorities read again, now and after the test."""
    other_way_out._trusted.cache_clear()
    yield other_way_out._trusted.cache_clear
    other_way_out._trusted.cache_clear()


@pytest.mark.req("J14", "J24")
@pytest.mark.case("A6")
@pytest.mark.usefixtures("trusted_anew")
@pytest.mark.parametrize(("trusted", "error"), [(False, "NETWORK"), (True, None)])
def test_a_certificate_is_checked_against_the_systems_authorities(
    make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool, error: str | None
) -> None:
    authority, context = _authority(tmp_path)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with FakeSelections(tls=context) as fake:
        client = make_client(url=fake.url)
        assert detach_one(client).error == error
        assert said(fake, reply(200)) == (error or "200 0")
        assert bool(fake.calls) is trusted
        client.close()


@pytest.mark.req("G2")
def test_an_address_of_ipv6_is_reached(make_client: MakeClient) -> None:
    with FakeSelections(host="::1") as fake:
        client = make_client(url=fake.url)
        assert detach_one(client).verdict is Verdict.DETACHED
        assert said(fake, reply(200, b"abc")) == "200 3"
        client.close()


@pytest.mark.req("J24")
@pytest.mark.case("A6")
def test_the_environments_proxies_are_not_heeded(
    fake: FakeSelections, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert detach_one(make_client()).verdict is Verdict.DETACHED
    assert said(fake, reply(200)) == "200 0"


@pytest.mark.req("J7")
@pytest.mark.case("A4")
def test_nothing_ends_a_silent_exchange_before_its_deadline() -> None:
    """The 5 s a wait that httpx sets unless told otherwise would cut a longer CreateTimeout short."""
    client = HttpClient()
    try:
        assert client._opened().timeout == httpx.Timeout(None)
    finally:
        client.close()
