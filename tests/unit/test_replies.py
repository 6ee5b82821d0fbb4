import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pin.rules.outbox import Reply, Verdict
from pin.rules.replies import MAX_REPLY_BYTES, read_detach_reply, read_retry_after
from tests.unit.entries import NOW

SNAPSHOT = UUID("0198a0c0-0000-7000-8000-000000000001")
JSON, PROBLEM, HTML = "application/json", "application/problem+json", "text/html; charset=utf-8"
LOGIN = b"<html>Please log in</html>"
NOT_FOUND, INVALID = "SELECTIONS_SNAPSHOT_NOT_FOUND", "VALIDATION_ERROR"


def _read(status: int, media_type: str, body: bytes, retry_after: tuple[str, ...] = ()) -> Reply:
    return read_detach_reply(SNAPSHOT, status, media_type, body, retry_after, NOW)


def _success(changed: Mapping[str, Any] | None = None) -> bytes:
    body = {
        "snapshotId": str(SNAPSHOT),
        "status": "Detached",
        "detachedAt": "2026-01-01T00:00:00Z",
        "detachReason": "PostDeleted",
    }
    return json.dumps(body | dict(changed or {})).encode()


def _coded(code: object) -> bytes:
    return json.dumps({"type": "about:blank", "title": "t", "status": 400, "code": code}).encode()


@pytest.mark.req("G4", "J13")
@pytest.mark.parametrize("media_type", [JSON, "application/json; charset=utf-8", "Application/JSON"])
@pytest.mark.parametrize("changed", [{}, {"addedLater": [1]}, {"detachReason": "BlockReplaced"}])
def test_the_contracts_answer_is_success(media_type: str, changed: Mapping[str, Any]) -> None:
    assert _read(200, media_type, _success(changed)) == Reply(Verdict.DETACHED, http_status=200)


@pytest.mark.req("G4", "J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    ("status", "media_type", "body"),
    [
        pytest.param(200, HTML, LOGIN, id="200 with a login page"),
        pytest.param(200, HTML, _success(), id="200 that calls its JSON a page"),
        pytest.param(200, "", _success(), id="200 without a type"),
        pytest.param(200, JSON, b"", id="200 without a body"),
        pytest.param(200, JSON, _success({"status": "Active"}), id="200 that says Active"),
        pytest.param(200, JSON, _success({"snapshotId": str(UUID(int=9))}), id="200 for another snapshot"),
        pytest.param(200, JSON, _success()[:-1], id="200 cut short"),
        pytest.param(200, JSON, b"\xff\xfe", id="200 in no encoding"),
        pytest.param(200, JSON, b"[" * 5000 + b"]" * 5000, id="200 nested deeply"),
        pytest.param(200, JSON, b"null", id="200 null"),
        pytest.param(200, JSON, _success({"pad": "x" * MAX_REPLY_BYTES}), id="200 too long"),
        pytest.param(204, "", b"", id="204"),
        pytest.param(201, JSON, _success(), id="201"),
        pytest.param(202, JSON, _success(), id="202"),
    ],
)
def test_any_other_2xx_is_an_invalid_response(status: int, media_type: str, body: bytes) -> None:
    assert _read(status, media_type, body) == Reply(Verdict.TRANSIENT, "INVALID_RESPONSE", http_status=status)


@pytest.mark.req("G4", "G26")
@pytest.mark.parametrize("more", [{"detachReason": "Unheard"}, {"detachedAt": None}, {"detachedBy": {"kind": "x"}}])
def test_success_asks_for_this_snapshot_detached_and_no_more(more: dict[str, object]) -> None:
    assert _read(200, JSON, _success(more)) == Reply(Verdict.DETACHED, http_status=200)


@pytest.mark.req("G3", "J14")
@pytest.mark.case("A6", "A1")
@pytest.mark.parametrize(
    ("status", "media_type", "body"),
    [
        pytest.param(302, HTML, LOGIN, id="302 to a login page"),
        pytest.param(304, "", b"", id="304"),
        pytest.param(100, "", b"", id="100"),
        pytest.param(400, HTML, LOGIN, id="400 of a gateway"),
        pytest.param(400, PROBLEM, _coded("OTHER"), id="400 with another code"),
        pytest.param(400, PROBLEM, _coded(NOT_FOUND), id="400 with the code of 404"),
        pytest.param(400, HTML, _coded(INVALID), id="400 whose code is in a page"),
        pytest.param(400, PROBLEM, _coded([INVALID]), id="400 whose code is a list"),
        pytest.param(404, HTML, LOGIN, id="404 of a gateway"),
        pytest.param(404, JSON, b"{}", id="404 without a code"),
        pytest.param(404, PROBLEM, _coded("NOT_FOUND"), id="404 of a route that is not there"),
        pytest.param(404, PROBLEM, _coded(INVALID), id="404 with the code of 400"),
        pytest.param(404, PROBLEM, _coded(NOT_FOUND)[:-1], id="404 cut short"),
        pytest.param(404, PROBLEM, b"[" * 5000, id="404 nested deeply"),
        pytest.param(404, PROBLEM, _coded(NOT_FOUND) + b" " * MAX_REPLY_BYTES, id="404 too long"),
        pytest.param(408, PROBLEM, _coded(INVALID), id="408"),
        pytest.param(409, PROBLEM, _coded(INVALID), id="409"),
        pytest.param(410, PROBLEM, _coded(NOT_FOUND), id="410"),
        pytest.param(422, PROBLEM, _coded(INVALID), id="422"),
        pytest.param(429, "", b"", id="429"),
        pytest.param(500, PROBLEM, _coded(INVALID), id="500 with a code of the contract"),
        pytest.param(500, "text/plain", b"a\x00b", id="500 with a NUL"),
        pytest.param(500, "text/plain; charset=utf-7", b"a+2D0-b", id="500 in UTF-7"),
        pytest.param(503, "text/plain", "\N{GRINNING FACE}".encode() * 512, id="503 with emoji"),
        pytest.param(600, "", b"", id="600"),
        pytest.param(999, JSON, _success(), id="999 with the body of a success"),
    ],
)
def test_what_is_neither_success_nor_permanent_is_transient_and_leaves_only_its_status(
    status: int, media_type: str, body: bytes
) -> None:
    assert _read(status, media_type, body) == Reply(Verdict.TRANSIENT, f"HTTP {status}", http_status=status)


@pytest.mark.req("G3")
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("media_type", "body"), [(HTML, LOGIN), (PROBLEM, _coded("FORBIDDEN")), (JSON, _coded(INVALID))]
)
def test_a_refused_credential_is_the_same_for_every_row(status: int, media_type: str, body: bytes) -> None:
    assert _read(status, media_type, body) == Reply(Verdict.REFUSED, f"HTTP {status}", http_status=status)


@pytest.mark.req("G3")
@pytest.mark.parametrize(
    ("status", "code", "verdict"), [(400, INVALID, Verdict.INVALID), (404, NOT_FOUND, Verdict.NOT_FOUND)]
)
@pytest.mark.parametrize("media_type", [PROBLEM, JSON, "application/problem+json; charset=utf-8"])
def test_only_the_contracts_own_code_is_permanent(status: int, code: str, verdict: Verdict, media_type: str) -> None:
    assert _read(status, media_type, _coded(code)) == Reply(verdict, f"HTTP {status} {code}", http_status=status)


@pytest.mark.req("J14", "G4")
@pytest.mark.case("A6")
@given(
    st.integers(100, 999),
    st.sampled_from([JSON, PROBLEM, HTML, "", "/", ";"]) | st.text(max_size=20),
    st.binary(max_size=200) | st.sampled_from([_success(), _coded(INVALID), _coded(NOT_FOUND)]),
    st.lists(st.text(max_size=30), max_size=2),
)
def test_every_reply_has_a_meaning(status: int, media_type: str, body: bytes, retry_after: list[str]) -> None:
    reply = read_detach_reply(SNAPSHOT, status, media_type, body, retry_after, NOW)
    assert (reply.verdict is Verdict.DETACHED) == (reply.error is None)
    assert reply.http_status == status
    if reply.verdict is Verdict.DETACHED:
        assert (status, body) == (200, _success())


@pytest.mark.req("G17")
@pytest.mark.case("A7")
@pytest.mark.parametrize(
    ("values", "wait"),
    [
        ([], None),
        (["-5"], None),
        (["1.5"], None),
        ([""], None),
        (["soon"], None),
        (["5 s"], None),
        (["٥"], None),
        (["\x00"], None),
        (["5", "5"], None),
        (["Thu, 01 Jan 1970 00:00:00 GMT"], None),
        (["Fri, 31 Dec 99999 23:59:59 GMT"], None),
        (["Sun, 01 Mar 2026 11:59:59 GMT"], None),
        (["Sun, 01 Mar 2026 12:00:00 +99999999999999999999"], None),
        (["0"], timedelta(0)),
        (["120"], timedelta(minutes=2)),
        ([" 120 "], timedelta(minutes=2)),
        (["000000000120"], timedelta(minutes=2)),
        (["Sun, 01 Mar 2026 12:02:00 GMT"], timedelta(minutes=2)),
        (["Sun, 01 Mar 2026 12:02:00"], timedelta(minutes=2)),
        (["Sun, 01 Mar 2026 13:02:00 +0100"], timedelta(minutes=2)),
        (["999999999"], timedelta(seconds=999999999)),
        (["9999999999"], timedelta.max),
        (["9" * 5000], timedelta.max),
    ],
)
def test_retry_after_is_seconds_or_a_date_to_come(values: list[str], wait: timedelta | None) -> None:
    assert read_retry_after(values, NOW) == wait


@pytest.mark.req("G17")
@pytest.mark.case("A7")
@given(st.lists(st.text() | st.datetimes().map(lambda moment: f"{moment:%a, %d %b %Y %H:%M:%S} GMT"), max_size=2))
def test_no_retry_after_raises_or_is_negative(values: list[str]) -> None:
    wait = read_retry_after(values, NOW)
    assert wait is None or wait >= timedelta(0)


@pytest.mark.req("G17")
@pytest.mark.case("A7")
@pytest.mark.parametrize("status", [429, 503])
def test_429_and_503_may_ask_to_wait(status: int) -> None:
    assert _read(status, "", b"", ("120",)).retry_after == timedelta(minutes=2)


@pytest.mark.req("G17")
@pytest.mark.parametrize("status", [200, 302, 401, 404, 500, 502, 504])
def test_no_other_status_may_ask_to_wait(status: int) -> None:
    assert _read(status, "", b"", ("120",)).retry_after is None
