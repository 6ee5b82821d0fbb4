"""Creating and reading snapshots: answers of the contract, refusals, and the rest, which is 'unavailable'."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable, SnapshotRefused
from pin.outgoing.tokens import TokenError
from pin.rules.contract import CreateSnapshotRequest, ErrorCode, Reason, SnapshotStatus
from tests.client.conftest import USER, MakeClient, Tokens
from tests.fake_selections import Call, Close, FakeSelections, Gate, Script, problem, reply

SELECTION, TENANT = UUID(int=50), UUID(int=60)


def _wanted(count: int = 1) -> list[CreateSnapshotRequest]:
    return [
        CreateSnapshotRequest(
            snapshot_id=UUID(int=number), selection_id=SELECTION, tenant_id=TENANT, requested_by_user_id=USER
        )
        for number in range(1, count + 1)
    ]


def _body(snapshot_id: str, **changed: Any) -> bytes:
    body = {
        "snapshotId": snapshot_id,
        "selectionId": str(SELECTION),
        "status": "Active",
        "content": {"selectionId": str(SELECTION), "title": "t", "items": ["a"], "takenAt": "2026-01-01T00:00:00Z"},
        "createdAt": "2026-01-01T00:00:00Z",
    }
    return json.dumps(body | changed).encode()


def _created(call: Call) -> Script:
    return reply(201, _body(call.json()["snapshotId"]))


def _got(call: Call) -> Script:
    return reply(200, _body(call.path.split("/")[-1]))


def _soon() -> float:
    return time.monotonic() + 10


@pytest.mark.req("G12", "G13")
def test_creating_sends_the_contracts_request_and_answers_in_order(
    fake: FakeSelections, client: SelectionsClient
) -> None:
    fake.answer = _created
    made = client.create_snapshots(_wanted(30), deadline=_soon())
    assert [snapshot.snapshot_id.int for snapshot in made] == list(range(1, 31))
    assert made[0].status == SnapshotStatus.ACTIVE
    assert made[0].content.items == ["a"]
    (call,) = [call for call in fake.calls if call.json()["snapshotId"] == str(UUID(int=1))]
    assert (call.method, call.path) == ("POST", "/api/v1/internal/snapshots")
    assert call.json() == {
        "snapshotId": str(UUID(int=1)),
        "selectionId": str(SELECTION),
        "tenantId": str(TENANT),
        "requestedByUserId": str(USER),
    }


@pytest.mark.req("G13")
def test_a_repeat_is_answered_200_and_is_the_same_snapshot(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda call: reply(200, _body(call.json()["snapshotId"]))
    (made,) = client.create_snapshots(_wanted(), deadline=_soon())
    assert made.snapshot_id == UUID(int=1)


@pytest.mark.req("G12")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (404, ErrorCode.SELECTIONS_SELECTION_NOT_FOUND),
        (409, ErrorCode.SELECTIONS_SNAPSHOT_ID_CONFLICT),
        (409, ErrorCode.SELECTIONS_SNAPSHOT_ID_REFUSED),
        (400, ErrorCode.VALIDATION_ERROR),
    ],
)
def test_a_refusal_names_its_snapshot_and_code(
    fake: FakeSelections, client: SelectionsClient, status: int, code: ErrorCode
) -> None:
    third = str(UUID(int=3))
    fake.answer = lambda call: problem(status, code) if call.json()["snapshotId"] == third else _created(call)
    with pytest.raises(SnapshotRefused) as refused:
        client.create_snapshots(_wanted(5), deadline=_soon())
    assert (refused.value.snapshot_id, refused.value.code) == (UUID(int=3), code)


@pytest.mark.req("G12", "J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda _: reply(503, b"a\x00b"), "HTTP 503"),
        (lambda _: problem(503, "SELECTIONS_SELECTION_NOT_FOUND"), "HTTP 503"),
        (lambda _: problem(404, "UNHEARD"), "HTTP 404"),
        (lambda _: reply(404, b"<html>", content_type="text/html"), "HTTP 404"),
        (lambda _: reply(404, b'{"code": "NOT_FOUND"}', content_type="text/html"), "HTTP 404"),
        (lambda _: problem(401, "UNAUTHORIZED"), "HTTP 401"),
        (lambda _: reply(302, headers=[("Location", "/login")]), "HTTP 302"),
        (lambda _: reply(200, b"<html>", content_type="text/html"), "INVALID_RESPONSE"),
        (lambda _: reply(201, _body(str(UUID(int=9)))), "INVALID_RESPONSE"),
        (lambda _: reply(201, b"[" * 5000), "INVALID_RESPONSE"),
        (lambda _: reply(204, content_type=None), "HTTP 204"),
        (lambda _: [Close()], "NETWORK"),
        (lambda _: [b"\x00nonsense\r\n\r\n", Close()], "NETWORK"),
        (lambda _: [b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Close()], "NETWORK"),
        (lambda _: [b"HTTP/1.1 200 X\r\nContent-Length: -4\r\n\r\n", Close()], "NETWORK"),
    ],
)
def test_anything_else_is_unavailable(
    fake: FakeSelections, client: SelectionsClient, answer: Callable[[Call], Script], said: str
) -> None:
    fake.answer = answer
    with pytest.raises(SelectionsUnavailable) as unavailable:
        client.create_snapshots(_wanted(), deadline=_soon())
    assert str(unavailable.value) == said
    assert client.get_snapshots([UUID(int=1)], deadline=_soon()) == {}


@pytest.mark.req("J14")
@pytest.mark.case("A6")
@pytest.mark.parametrize("url", ["", "nonsense", "http://", "http://[::1", "ftp://localhost", "http://\x00"])
def test_a_base_url_that_is_none_is_unavailable(make_client: MakeClient, url: str) -> None:
    client = make_client(url=url)
    with pytest.raises(SelectionsUnavailable, match="NETWORK"):
        client.create_snapshots(_wanted(), deadline=_soon())
    assert client.get_snapshots([UUID(int=1)], deadline=_soon()) == {}


@pytest.mark.req("J14")
@pytest.mark.case("A8")
def test_no_token_to_be_had_is_unavailable(client: SelectionsClient, tokens: Tokens) -> None:
    tokens.error = TokenError("no key")
    with pytest.raises(SelectionsUnavailable, match="CREDENTIAL"):
        client.create_snapshots(_wanted(), deadline=_soon())
    assert client.get_snapshots([UUID(int=1)], deadline=_soon()) == {}


@pytest.mark.req("G13")
@pytest.mark.case("A4")
def test_creating_ends_by_its_deadline(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda call: [Gate()] if call.json()["snapshotId"] == str(UUID(int=2)) else _created(call)
    started = time.monotonic()
    with pytest.raises(SelectionsUnavailable, match="TIMEOUT"):
        client.create_snapshots(_wanted(30), deadline=started + 0.5)
    assert time.monotonic() - started < 1.5
    with pytest.raises(SelectionsUnavailable, match="TIMEOUT"):
        client.create_snapshots(_wanted(), deadline=time.monotonic() - 1)


@pytest.mark.req("J22")
def test_reading_answers_what_there_is_in_any_status(fake: FakeSelections, client: SelectionsClient) -> None:
    gone, broken = UUID(int=2), UUID(int=3)

    def answer(call: Call) -> Script:
        if call.path.endswith(str(gone)):
            return problem(404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
        if call.path.endswith(str(broken)):
            return [Close()]
        return reply(
            200,
            _body(
                call.path.split("/")[-1],
                status="Detached",
                detachedAt="2026-01-02T00:00:00Z",
                detachReason="PostDeleted",
                addedLater=1,
            ),
        )

    fake.answer = answer
    found = client.get_snapshots([UUID(int=1), gone, broken, UUID(int=1), UUID(int=4)], deadline=_soon())
    assert set(found) == {UUID(int=1), UUID(int=4)}
    assert found[UUID(int=4)].detach_reason == Reason.POST_DELETED
    assert found[UUID(int=4)].detached_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert len([call for call in fake.calls if call.path.endswith(str(UUID(int=1)))]) == 1


@pytest.mark.req("J22")
def test_a_snapshot_that_answers_for_another_is_absent(fake: FakeSelections, client: SelectionsClient) -> None:
    fake.answer = lambda _: reply(200, _body(str(UUID(int=9))))
    assert client.get_snapshots([UUID(int=1)], deadline=_soon()) == {}


@pytest.mark.req("J22")
@pytest.mark.case("A4")
def test_what_cannot_be_read_in_time_is_absent(fake: FakeSelections, client: SelectionsClient) -> None:
    slow = UUID(int=2)
    fake.answer = lambda call: [Gate()] if call.path.endswith(str(slow)) else _got(call)
    started = time.monotonic()
    assert set(client.get_snapshots([UUID(int=1), slow], deadline=started + 0.5)) == {UUID(int=1)}
    assert time.monotonic() - started < 1.5
