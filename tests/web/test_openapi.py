"""The document describes every route, status and code; nothing is served that it does not describe."""

from typing import Any

import httpx
import pytest
from litestar import Litestar, get

from pin.rules.contract import ErrorCode
from tests.serving import MakeSettings
from web.app import create_app
from web.openapi import OPENAPI_PATH, document, operations

STATUSES = {
    401: {"UNAUTHORIZED"},
    403: {"FORBIDDEN"},
    412: {"PRECONDITION_FAILED"},
    413: {"PAYLOAD_TOO_LARGE"},
    415: {"UNSUPPORTED_MEDIA_TYPE"},
    428: {"PRECONDITION_REQUIRED"},
    500: {"INTERNAL_ERROR"},
}


@pytest.fixture(params=[("selections",), ("news",), ("selections", "news")], ids="+".join)
def app(request: pytest.FixtureRequest, database: str, app_settings: MakeSettings) -> Litestar:
    return create_app(app_settings(database, contexts=request.param))


@pytest.mark.req("C5")
def test_every_route_is_described_with_its_statuses_and_codes(app: Litestar) -> None:
    written = document(app.routes)
    for path, method, handler in operations(app.routes):
        operation = written["paths"][path][method]
        assert operation["operationId"] == handler.handler_name
        responses: dict[str, Any] = operation["responses"]
        assert any(status.startswith("2") for status in responses), path
        assert "500" in responses
        for status, response in responses.items():
            if int(status) < 400:
                continue
            schema = response["content"]["application/problem+json"]["schema"]
            codes = set(schema["allOf"][1]["properties"]["code"]["enum"])
            assert codes <= set(ErrorCode), path
            assert codes <= STATUSES.get(int(status), codes), path
        if handler.resolve_guards():
            assert operation["security"] == [{"bearer": []}], path
            assert {"401", "403"} <= responses.keys(), path
        if method in {"post", "put", "patch"} and "requestBody" in operation:
            assert {"400", "413", "415"} <= responses.keys(), path
        assert {part["name"] for part in operation.get("parameters", []) if part["in"] == "path"} == {
            part.strip("{}") for part in path.split("/") if part.startswith("{")
        }
    names = [name for path in written["paths"].values() for name in (o["operationId"] for o in path.values())]
    assert len(names) == len(set(names)), "an operation's id is its own"
    _assert_references_resolve(written, written)


@pytest.mark.req("C5")
def test_the_document_is_served_as_json_and_nothing_else_is(client: httpx.Client) -> None:
    response = client.get(OPENAPI_PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    body = response.json()
    detach = body["paths"]["/api/v1/internal/snapshots/{snapshot_id}/detach"]["post"]
    assert set(detach["responses"]) == {"200", "400", "401", "403", "404", "413", "415", "500", "503"}
    assert set(body["components"]["schemas"]["DetachRequest"]["required"]) == {"reason", "requestedByUserId"}
    for path in ("/schema", "/schema/swagger", "/docs", "/api/v1/swagger"):
        assert client.get(path).status_code == 404


@pytest.mark.req("C5")
def test_a_route_that_says_nothing_of_itself_is_refused() -> None:
    @get("/silent", sync_to_thread=False)
    def silent() -> None: ...

    with pytest.raises(LookupError, match="GET /silent"):
        document(Litestar([silent], openapi_config=None).routes)


def _assert_references_resolve(node: Any, root: dict[str, Any]) -> None:
    if isinstance(node, dict):
        if reference := node.get("$ref"):
            found: Any = root
            for part in reference.removeprefix("#/").split("/"):
                found = found[part]
        for value in node.values():
            _assert_references_resolve(value, root)
    elif isinstance(node, list):
        for value in node:
            _assert_references_resolve(value, root)
