"""Whatever is sent as a body, the answer is the contract's and never a 500 (A21)."""

import json
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest
from structlog.testing import capture_logs

from pin.rules.contract import DETACH_PATH
from tests.selections.api import refusal
from tests.serving import Keys, bearer

ID = str(uuid4())
GOOD = {"reason": "BlockReplaced", "requestedByUserId": ID}
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def send(client: httpx.Client, keys: Keys) -> "Sender":
    return Sender(client, bearer(keys.token(client="news")))


class Sender:
    """Sends a body to detach, for a snapshot that does not exist: 404 is what a body without fault is answered."""

    def __init__(self, client: httpx.Client, token: dict[str, str]) -> None:
        self.client, self.token = client, token

    def __call__(self, content: bytes | Iterator[bytes], headers: dict[str, str] | None = None) -> httpx.Response:
        path = DETACH_PATH.format(id=uuid4())
        return self.client.post(path, content=content, headers=self.token | (JSON if headers is None else headers))


MALFORMED = {
    "3,000 nested arrays": b"[" * 3000 + b"]" * 3000,
    "3,000 nested arrays in a field": b'{"reason":' + b"[" * 3000 + b"]" * 3000 + b"}",
    "3,000 nested objects": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "3,000 nested in an unknown field": json.dumps(GOOD).encode()[:-1] + b',"x":' + b"[" * 3000 + b"]" * 3000 + b"}",
    "cut": b'{"reason":"Blo',
    "two documents": json.dumps(GOOD).encode() * 2,
    "trailing comma": b'{"reason":"BlockReplaced",}',
    "invalid UTF-8": b'{"reason":"\xff"}',
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "overlong UTF-8": b'{"reason":"\xc0\x80"}',
    "a BOM": b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
    "NaN": b"NaN",
    "a lone surrogate": b'{"reason":"\\ud800","requestedByUserId":"x"}',
    "NUL in a text": b'{"reason":"\\u0000","requestedByUserId":"x"}',
    "NUL byte": b"\0",
    "5,000 digits": b'{"reason":' + b"1" * 5000 + b"}",
    "reason twice": b'{"reason":"PostDeleted","reason":"BlockReplaced","requestedByUserId":"' + ID.encode() + b'"}',
    "an unknown field": json.dumps(GOOD | {"extra": 1}).encode(),
    "another case": json.dumps({"Reason": "BlockReplaced", "RequestedByUserId": ID}).encode(),
    "snake case": json.dumps({"reason": "BlockReplaced", "requested_by_user_id": ID}).encode(),
    "nothing": b"",
    "blank": b"  ",
    "a string": b'"x"',
    "a number": b"1",
}


@pytest.mark.req("D3", "G3")
@pytest.mark.case("A21")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_faulty_body_is_a_400(send: Sender, name: str) -> None:
    with capture_logs() as logs:
        response = send(MALFORMED[name])
    assert refusal(response) == (400, "VALIDATION_ERROR")
    assert response.json()["title"] == "Некорректный запрос"
    assert response.json()["errors"][0].keys() == {"field", "message"}
    assert logs == []


@pytest.mark.req("D3")
@pytest.mark.case("A21")
def test_spellings_of_a_good_body(send: Sender) -> None:
    not_found = (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
    good = json.dumps(GOOD).encode()
    for content in (
        good,
        b" \n" + good + b"\n ",
        good.replace(b"reason", b"\\u0072eason"),
    ):
        assert refusal(send(content)) == not_found
    for content_type in (
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        'application/json; charset="utf-8"',
    ):
        assert refusal(send(good, {"Content-Type": content_type})) == not_found
    assert refusal(send(iter([good[:5], b"", good[5:]]))) == not_found


@pytest.mark.req("D3")
@pytest.mark.case("A21")
def test_another_content_type_is_a_415(send: Sender) -> None:
    good = json.dumps(GOOD).encode()
    for content_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/problem+json",
        "application/json; charset=utf-16",
        "application/jsonx",
        "",
        ",",
    ):
        assert refusal(send(good, {"Content-Type": content_type})) == (415, "UNSUPPORTED_MEDIA_TYPE"), content_type
    assert refusal(send(good, {})) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.req("D3")
@pytest.mark.case("A21")
def test_an_oversize_body_is_a_413_announced_or_chunked(send: Sender) -> None:
    chunk = b" " * 65_536
    assert refusal(send(chunk * 5)) == (413, "PAYLOAD_TOO_LARGE")
    assert refusal(send(iter([chunk] * 5))) == (413, "PAYLOAD_TOO_LARGE")
    assert refusal(send(chunk * 3 + json.dumps(GOOD).encode()))[0] == 404


@pytest.mark.req("G10")
@pytest.mark.case("A21")
def test_no_body_is_read_for_a_caller_that_may_not_call(client: httpx.Client, keys: Keys) -> None:
    stranger = Sender(client, bearer(keys.token(client="other")))
    for content in (b"[" * 3000, b"", iter([b" " * 65_536] * 5)):
        assert refusal(stranger(content)) == (403, "FORBIDDEN")
