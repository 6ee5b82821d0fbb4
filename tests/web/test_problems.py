"""Refusals and failures: all of one shape, none leaking, each fault logged once."""

import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Never
from uuid import UUID, uuid4

import httpx
import pytest
from litestar import Litestar
from structlog.testing import capture_logs

from pin.rules.contract import SNAPSHOT_PATH
from tests.selections.api import refusal
from tests.serving import Keys, MakeSettings, bearer
from web.app import assemble, create_app
from web.deps import build_deps

Serve = Callable[[Litestar], str]
SELECTIONS = "/api/v1/selections"


@pytest.mark.req("G10")
def test_unknown_routes_and_methods(client: httpx.Client) -> None:
    for path in ("/", "/nope", "/api/v1", "/api/v1/internal", "/api/v1/selections/a/b", "/%00", "/%ff/<script>"):
        response = client.get(path)
        assert refusal(response) == (404, "NOT_FOUND"), path
    for method, path, allowed in (
        ("DELETE", SELECTIONS, {"POST", "OPTIONS"}),
        ("DELETE", "/api/v1/internal/snapshots", {"GET", "POST", "OPTIONS"}),
        ("PATCH", f"{SELECTIONS}/{uuid4()}", {"GET", "PUT", "OPTIONS"}),
        ("POST", "/health/live", {"GET", "OPTIONS"}),
        ("PROPFIND", "/metrics", {"GET", "OPTIONS"}),
    ):
        response = client.request(method, path)
        assert refusal(response) == (405, "METHOD_NOT_ALLOWED"), path
        assert set(response.headers["allow"].split(", ")) == allowed


@pytest.mark.req("G10")
@pytest.mark.case("A20")
def test_a_header_that_holds_no_valid_token_is_a_401(client: httpx.Client, keys: Keys) -> None:
    token = keys.token(client="news")
    path = SNAPSHOT_PATH.format(id=uuid4())
    texts = ("", "Bearer", f"Basic {token}", token, f"Bearer {token}x", "Bearer a b", "Bearer \xff")
    for header in (given.encode("latin-1") for given in texts):
        with capture_logs() as logs:
            response = client.get(path, headers=[(b"Authorization", header)])
        assert refusal(response) == (401, "UNAUTHORIZED"), header
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert logs == []
    twice = client.get(path, headers=[("Authorization", f"Bearer {token}")] * 2)
    assert refusal(twice) == (401, "UNAUTHORIZED")
    assert refusal(client.get(path, headers={"Authorization": f"bearer  {token}"}))[0] == 404


@pytest.mark.req("G10")
def test_a_fault_is_a_500_that_leaks_nothing_and_is_logged_once(
    database: str, app_settings: MakeSettings, serve: Serve, keys: Keys
) -> None:
    def fail() -> Never:
        raise RuntimeError("secret of the house")

    url = serve(assemble(replace(build_deps(app_settings(database)), new_id=fail)))
    headers = bearer(keys.token(user_id=uuid4(), tenant_id=uuid4()))
    with capture_logs() as logs:
        response = httpx.post(url + SELECTIONS, json={"title": "t", "items": []}, headers=headers, trust_env=False)
    assert refusal(response) == (500, "INTERNAL_ERROR")
    assert "secret" not in response.text
    assert "RuntimeError" not in response.text
    (entry,) = logs
    assert (entry["event"], entry["error"], entry["route"]) == ("request failed", "RuntimeError", SELECTIONS)
    assert "secret" not in str(entry)
    assert "fail" in str(entry["raised_at"][-1])


@pytest.mark.req("G3", "J14")
def test_a_database_that_is_down_is_a_503(app_settings: MakeSettings, serve: Serve, keys: Keys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    url = serve(create_app(app_settings(f"postgresql://pin:secret@127.0.0.1:{port}/pin")))
    with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
        headers = bearer(keys.token(client="news"))
        with capture_logs() as logs:
            response = client.get(SNAPSHOT_PATH.format(id=uuid4()), headers=headers)
        assert refusal(response) == (503, "UNAVAILABLE")
        assert str(port) not in response.text
        (entry,) = logs
        assert "secret" not in str(entry)
        assert refusal(client.get("/health/ready")) == (503, "UNAVAILABLE")
        assert client.get("/health/live").status_code == 200
        assert client.get("/metrics").status_code == 200
        assert refusal(client.get(SNAPSHOT_PATH.format(id=UUID(int=0)), headers=headers))[0] == 400
