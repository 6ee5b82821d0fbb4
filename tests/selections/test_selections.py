"""Users' selections: create, get, edit by the owner at the revision seen."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from tests.selections.api import Api, refusal

PATH = "/api/v1/selections"
NOT_FOUND = (404, "SELECTIONS_SELECTION_NOT_FOUND")


def put(api: Api, selection_id: object, body: Any, **headers: str) -> httpx.Response:
    """Edit as the owner."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.client.put(f"{PATH}/{selection_id}", json=body, headers=api.user() | given)


@pytest.mark.req("G12")
def test_create_and_get(api: Api) -> None:
    made = api.client.post(PATH, json={"title": "T", "items": ["a"]}, headers=api.user())
    assert made.status_code == 201
    body = made.json()
    assert made.headers["location"] == f"{PATH}/{body['id']}"
    assert (body["title"], body["items"], body["ownerId"]) == ("T", ["a"], str(api.owner))
    got = api.client.get(made.headers["location"], headers=api.user(user_id=uuid4()))
    assert (got.status_code, got.json()) == (200, body), "everyone of the tenant sees it"
    assert got.headers["etag"] == made.headers["etag"] == f'"{body["revision"]}"'


@pytest.mark.req("G12")
def test_another_tenant_sees_and_changes_nothing(api: Api) -> None:
    selection_id, stranger = api.selection(), api.user(tenant_id=uuid4())
    body = {"title": "X", "items": []}
    assert refusal(api.client.get(f"{PATH}/{selection_id}", headers=stranger)) == NOT_FOUND
    change = api.client.put(f"{PATH}/{selection_id}", json=body, headers=stranger | {"If-Match": "*"})
    assert refusal(change) == NOT_FOUND
    assert refusal(put(api, uuid4(), body, If_Match="*")) == NOT_FOUND
    assert refusal(put(api, "xyz", body, If_Match="*")) == (400, "VALIDATION_ERROR")


@pytest.mark.req("G12")
def test_only_the_owner_edits(api: Api) -> None:
    selection_id = api.selection()
    colleague = api.user(user_id=uuid4()) | {"If-Match": "*"}
    change = api.client.put(f"{PATH}/{selection_id}", json={"title": "X", "items": []}, headers=colleague)
    assert refusal(change) == (403, "FORBIDDEN")
    assert refusal(api.client.get(f"{PATH}/{selection_id}", headers=api.news)) == (403, "FORBIDDEN")
    assert refusal(api.client.get(f"{PATH}/{selection_id}")) == (401, "UNAUTHORIZED")


@pytest.mark.req("G12")
def test_an_edit_names_the_revision_it_has_seen(api: Api) -> None:
    selection_id, body = api.selection(), {"title": "New", "items": ["n"]}
    assert refusal(put(api, selection_id, body)) == (428, "PRECONDITION_REQUIRED")
    for stale in ('"0"', '"2"', 'W/"1"', "1", '"x"', '"1', "", '"99999999999999999999"'):
        assert refusal(put(api, selection_id, body, If_Match=stale)) == (412, "PRECONDITION_FAILED"), stale
    edited = put(api, selection_id, body, If_Match='"7", "1"')
    assert (edited.status_code, edited.json()["revision"], edited.headers["etag"]) == (200, 2, '"2"')
    assert refusal(put(api, selection_id, body, If_Match='"1"')) == (412, "PRECONDITION_FAILED")
    assert put(api, selection_id, body, If_Match="*").json()["revision"] == 3


@pytest.mark.req("G12")
def test_of_edits_at_once_with_one_etag_one_wins(api: Api) -> None:
    selection_id = api.selection()
    with ThreadPoolExecutor(8) as pool:
        statuses = pool.map(
            lambda n: put(api, selection_id, {"title": f"T{n}", "items": []}, If_Match='"1"').status_code, range(8)
        )
        assert sorted(statuses) == [200] + [412] * 7


@pytest.mark.req("G12")
@pytest.mark.case("A21")
def test_what_a_selection_may_hold(api: Api) -> None:
    right = [{"title": "🎬" * 200, "items": []}, {"title": "t", "items": ["ж" * 500] * 100}]
    right.append({"title": "t", "items": [""] * 500})
    for body in right:
        response = api.client.post(PATH, json=body, headers=api.user())
        assert response.status_code == 201, body
        assert UUID(response.json()["id"]).version == 7
    wrong: list[tuple[Any, str]] = [
        ({"title": "", "items": []}, "$.title"),
        ({"title": "t" * 201, "items": []}, "$.title"),
        ({"title": None, "items": []}, "$.title"),
        ({"title": "a\0b", "items": []}, "$.title"),
        ({"title": "t", "items": ["ok", "a\0b"]}, "$.items[1]"),
        ({"title": "t", "items": ["x"] * 501}, "$.items"),
        ({"title": "t", "items": ["x" * 501]}, "$.items[0]"),
        ({"title": "t", "items": [1]}, "$.items[0]"),
        ({"title": "t", "items": "x"}, "$.items"),
        ({"title": "t"}, "$"),
        ({"title": "t", "items": [], "ownerId": str(uuid4())}, "$"),
    ]
    for body, field in wrong:
        response = api.client.post(PATH, json=body, headers=api.user())
        assert refusal(response) == (400, "VALIDATION_ERROR"), body
        assert response.json()["errors"][0]["field"] == field, body
