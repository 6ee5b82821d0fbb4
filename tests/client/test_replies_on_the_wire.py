"""Every answer, however broken, ends in a reply of class and code alone."""

import gzip
import json
import time
from datetime import timedelta
from uuid import UUID

import pytest

from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient
from pin.outgoing.tokens import TokenError
from pin.rules.outbox import Verdict, clean_error
from tests.client.conftest import USER, MakeClient, Tokens, detach, detach_one
from tests.fake_selections import Close, FakeSelections, Gate, Pause, Script, detached, problem, reply, trickling

_HEAD = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n"
_LIMIT = 0.75  # seconds a call may take in these tests; the trickles last five times as long


@pytest.mark.req("D1", "G1", "J13")
def test_a_detach_is_the_contracts_request(fake: FakeSelections, client: SelectionsClient) -> None:
    assert detach_one(client).verdict is Verdict.DETACHED
    (call,) = fake.calls
    assert (call.method, call.path) == ("POST", f"/api/v1/internal/snapshots/{UUID(int=1)}/detach")
    assert call.json() == {"reason": "PostDeleted", "requestedByUserId": str(USER)}
    assert call.header("content-type") == "application/json"
    assert call.header("authorization") == "Bearer token-0"
    assert call.header("accept-encoding") == "identity"


@pytest.mark.req("J14")
@pytest.mark.case("A1")
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain", b"a\x00b"),
        ("text/plain; charset=utf-7", b"a+2D0-b"),
        ("text/plain", b"x" * 513),
        ("text/plain", "\N{GRINNING FACE}".encode() * 512),
        ("application/problem+json", json.dumps({"code": "x" * 513, "title": "\ud83d"}).encode()),
    ],
)
def test_no_text_of_a_reply_reaches_the_error(
    fake: FakeSelections, client: SelectionsClient, content_type: str, body: bytes
) -> None:
    fake.answer = lambda _: reply(500, body, content_type=content_type)
    found = detach_one(client)
    assert (found.verdict, found.http_status) == (Verdict.TRANSIENT, 500)
    assert clean_error(found.error) == "HTTP 500"


@pytest.mark.req("J14")
@pytest.mark.case("A4")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param([b"HTTP/1.1 200 OK\r\n", *trickling([b"X-A: b\r\n"] * 40, 0.1)], id="headers"),
        pytest.param([_HEAD + b"Content-Length: 40\r\n\r\n", *trickling([b"x"] * 40, 0.1)], id="body of a 500"),
        pytest.param(
            [_HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *trickling([b"1\r\nx\r\n"] * 40, 0.1)], id="chunks"
        ),
        pytest.param(trickling([b"HTTP/1.1 100 Continue\r\n\r\n"] * 40, 0.1), id="repeated 1xx"),
        pytest.param([Pause(4.0)], id="silence"),
        pytest.param([Gate()], id="for ever"),
    ],
)
def test_a_trickle_meets_the_total_deadline(fake: FakeSelections, client: SelectionsClient, script: Script) -> None:
    detach_one(client)
    fake.answer = lambda _: script
    started = time.monotonic()
    found = detach_one(client, call_timeout=_LIMIT)
    took = time.monotonic() - started
    assert (found.verdict, found.error) == (Verdict.TRANSIENT, "TIMEOUT")
    assert _LIMIT * 0.9 <= took <= _LIMIT * 2
    assert timedelta(seconds=_LIMIT * 0.9) <= found.duration <= timedelta(seconds=took)


@pytest.mark.req("J14")
@pytest.mark.case("A5")
def test_a_lost_reply_is_an_unknown_outcome_and_the_next_call_works(
    fake: FakeSelections, client: SelectionsClient
) -> None:
    fake.answer = lambda _: [Close()]
    found = detach_one(client)
    assert (found.verdict, found.error) == (Verdict.TRANSIENT, "NETWORK")
    assert len(fake.calls) == 1, "an unknown outcome is not repeated behind the schedule's back"
    fake.answer = detached
    assert detach_one(client).verdict is Verdict.DETACHED


@pytest.mark.req("J14")
@pytest.mark.case("A5")
def test_a_connection_closed_between_calls_costs_at_most_one_attempt(
    fake: FakeSelections, client: SelectionsClient
) -> None:
    fake.answer = lambda call: [*detached(call), Close()]
    for _ in range(20):
        found = detach_one(client)
        assert found.verdict is Verdict.DETACHED or found.error == "NETWORK"


@pytest.mark.req("J14")
@pytest.mark.case("A5")
def test_connections_are_kept_alive(fake: FakeSelections, client: SelectionsClient) -> None:
    for _ in range(5):
        assert detach_one(client).verdict is Verdict.DETACHED
    assert fake.connections == 1


@pytest.mark.req("G4", "J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param(reply(600), "HTTP 600", id="status 600"),
        pytest.param([b"HTTP/1.1 204 No Content\r\n\r\n"], "INVALID_RESPONSE", id="204"),
        pytest.param(reply(200, b"<html>", content_type="text/html"), "INVALID_RESPONSE", id="200 html"),
        pytest.param(reply(404, b"<html>", content_type="text/html"), "HTTP 404", id="404 of a gateway"),
        pytest.param(reply(503, b"no gzip", headers=[("Content-Encoding", "gzip")]), "HTTP 503", id="broken gzip"),
        pytest.param(
            reply(400, gzip.compress(b'{"code": "VALIDATION_ERROR"}'), headers=[("Content-Encoding", "gzip")]),
            "HTTP 400",
            id="gzip that nobody asked for",
        ),
        pytest.param(
            reply(400, b'{"code": "VALIDATION_ERROR"}', headers=[("Content-Encoding", "gzip")]),
            "HTTP 400",
            id="JSON that calls itself gzip",
        ),
        pytest.param(reply(503, b"x" * 6_000_000), "HTTP 503", id="huge body"),
        pytest.param([_HEAD + b"Content-Length: 40\r\n\r\nab", Close()], "NETWORK", id="body cut short"),
        pytest.param([_HEAD, Close()], "NETWORK", id="headers cut short"),
        pytest.param([b"\x00\x01nonsense\r\n\r\n", Close()], "INVALID_RESPONSE", id="no HTTP"),
        pytest.param([_HEAD + b"Content-Length: -4\r\n\r\n", Close()], "INVALID_RESPONSE", id="negative length"),
        pytest.param(
            [_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", Close()], "INVALID_RESPONSE", id="broken chunk"
        ),
        pytest.param([_HEAD + b"A: " + b"b" * 200_000 + b"\r\n\r\n", Close()], "INVALID_RESPONSE", id="huge header"),
        pytest.param([_HEAD + b"Retry-After: \xff\r\nContent-Length: 0\r\n\r\n"], "HTTP 500", id="header in Latin-1"),
    ],
)
def test_whatever_comes_is_a_transient_reply(
    fake: FakeSelections, client: SelectionsClient, script: Script, error: str
) -> None:
    fake.answer = lambda _: script
    found = detach_one(client)
    assert (found.verdict, found.error) == (Verdict.TRANSIENT, error)
    fake.answer = detached
    assert detach_one(client).verdict is Verdict.DETACHED


@pytest.mark.req("G4")
@pytest.mark.case("A6")
@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(fake: FakeSelections, client: SelectionsClient, status: int) -> None:
    fake.answer = lambda _: reply(status, headers=[("Location", f"{fake.url}/login")])
    found = detach_one(client)
    assert (found.verdict, found.error) == (Verdict.TRANSIENT, f"HTTP {status}")
    assert len(fake.calls) == 1


@pytest.mark.req("G3")
def test_the_contracts_codes_are_permanent(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda _: problem(404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
    assert detach_one(client).verdict is Verdict.NOT_FOUND
    fake.answer = lambda _: problem(400, "VALIDATION_ERROR")
    assert detach_one(client).verdict is Verdict.INVALID


@pytest.mark.req("G17")
@pytest.mark.case("A7")
@pytest.mark.parametrize(
    ("values", "wait"), [(["30"], timedelta(seconds=30)), (["9" * 5000], timedelta.max), (["5", "6"], None), ([], None)]
)
def test_retry_after_comes_through(
    fake: FakeSelections, client: SelectionsClient, values: list[str], wait: timedelta | None
) -> None:
    fake.answer = lambda _: reply(503, headers=[("Retry-After", value) for value in values])
    assert detach_one(client).retry_after == wait


@pytest.mark.req("J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    "url", ["", "nonsense", "http://", "http://[::1", "ftp://localhost", "http://localhost:99999", "http://\x00"]
)
def test_a_base_url_that_is_none_ends_in_a_reply(make_client: MakeClient, url: str) -> None:
    found = detach_one(make_client(url=url))
    assert found.verdict is Verdict.TRANSIENT
    assert found.error in {"NETWORK", "CLIENT InvalidURL"}


@pytest.mark.req("J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize("prefix", ["a\nb", "a\x00b", "é", "\ud800"])
def test_a_token_that_no_header_can_hold_ends_in_a_reply(
    fake: FakeSelections, client: SelectionsClient, tokens: Tokens, prefix: str
) -> None:
    tokens.prefix = prefix
    found = detach_one(client)
    assert found.verdict is Verdict.TRANSIENT
    assert (found.error or "").startswith("CLIENT ")
    assert fake.calls == []


@pytest.mark.req("G3")
def test_no_token_to_be_had_is_the_same_for_every_row(
    fake: FakeSelections, client: SelectionsClient, tokens: Tokens
) -> None:
    tokens.error = TokenError("no key")
    found, *rest = detach(client, 40)
    assert found is not None
    assert (found.verdict, found.error) == (Verdict.REFUSED, "CREDENTIAL")
    assert None in rest
    assert fake.calls == []


@pytest.mark.req("J14")
@pytest.mark.case("A9")
def test_nobody_listening_is_a_network_error(make_client: MakeClient) -> None:
    with FakeSelections() as gone:
        url = gone.url
    assert detach_one(make_client(url=url)).error == "NETWORK"


@pytest.mark.req("J24")
def test_cookies_are_not_sent_back(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda _: reply(503, headers=[("Set-Cookie", "session=1; Path=/")])
    detach(client, 2)
    detach(client, 2)
    assert [call.header("cookie") for call in fake.calls] == [None] * 4


@pytest.mark.req("D14")
def test_a_reason_of_a_newer_release_is_sent_as_it_stands(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda _: problem(400, "VALIDATION_ERROR")
    (found,) = detach(client, [DetachCall(UUID(int=1), "Unheard", USER)])
    assert found is not None
    assert found.verdict is Verdict.INVALID
    assert fake.calls[0].json()["reason"] == "Unheard"
