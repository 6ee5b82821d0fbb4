"""The acceptance criteria of the detach document, one test each (D16)."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from tests.selections.api import Api, events, refusal, row


@pytest.mark.req("D16.1", "D1", "D5", "D6")
def test_block_replaced_on_an_active_snapshot(api: Api, engine: Engine) -> None:
    snapshot_id, user = api.snapshot(), uuid4()
    response = api.detach(snapshot_id, "BlockReplaced", user)
    assert response.status_code == 200
    answer = response.json()
    assert answer.keys() == {"snapshotId", "status", "detachedAt", "detachReason"}
    assert (answer["snapshotId"], answer["status"]) == (str(snapshot_id), "Detached")
    assert answer["detachReason"] == "BlockReplaced"
    stored = row(engine, snapshot_id)
    assert stored["detached_at"] == stored["updated_at"] == datetime.fromisoformat(answer["detachedAt"])
    assert (stored["status"], stored["detach_reason"]) == ("Detached", "BlockReplaced")
    (event,) = events(engine, snapshot_id)
    assert (event["reason"], event["requested_by_user_id"]) == ("BlockReplaced", user)
    assert event["occurred_at"] == stored["detached_at"]


@pytest.mark.req("D16.2", "D1", "D5", "D7")
def test_a_repeat_with_the_same_and_with_another_reason_changes_nothing(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    first = api.detach(snapshot_id, "BlockReplaced")
    stored, recorded = row(engine, snapshot_id), events(engine, snapshot_id)
    same, other = api.detach(snapshot_id, "BlockReplaced"), api.detach(snapshot_id, "PostDeleted", uuid4())
    assert (same.status_code, other.status_code) == (200, 200)
    assert first.json() == same.json() == other.json()
    assert row(engine, snapshot_id) == stored
    assert events(engine, snapshot_id) == recorded
    assert len(recorded) == 1


@pytest.mark.req("D16.3", "D4")
def test_an_unknown_snapshot_is_not_found(api: Api) -> None:
    response = api.detach(uuid4())
    assert refusal(response) == (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
    assert response.json()["title"] == "Snapshot не найден"


@pytest.mark.req("D16.4", "D3", "D14")
def test_a_reason_outside_the_enum_is_refused(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    response = api.detach(snapshot_id, "PostArchived")
    assert refusal(response) == (400, "VALIDATION_ERROR")
    assert response.json()["title"] == "Некорректный запрос"
    assert response.json()["errors"][0]["field"] == "$.reason"
    assert row(engine, snapshot_id)["status"] == "Active"


@pytest.mark.req("D16.5", "D2")
def test_a_caller_that_is_not_news_is_forbidden(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    for token in (api.keys.token(client="billing"), api.keys.token(user_id=api.owner, tenant_id=api.tenant)):
        response = api.detach(snapshot_id, headers={"Authorization": f"Bearer {token}"})
        assert refusal(response) == (403, "FORBIDDEN")
    assert row(engine, snapshot_id)["status"] == "Active"


@pytest.mark.req("D16.6", "D8")
@pytest.mark.case("A19")
def test_both_reasons_at_once(api: Api, engine: Engine) -> None:
    snapshot_id, together = api.snapshot(), threading.Barrier(20)

    def call(number: int) -> tuple[int, str]:
        together.wait(20)
        response = api.detach(snapshot_id, ("BlockReplaced", "PostDeleted")[number % 2])
        return response.status_code, response.text

    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(call, range(20)))
    assert len(answers) == 1, "all are told the same first reason and moment"
    ((status, _),) = answers
    assert status == 200
    (event,) = events(engine, snapshot_id)
    assert event["reason"] == row(engine, snapshot_id)["detach_reason"]
    assert row(engine, snapshot_id)["version"] == 1


@pytest.mark.req("D16.7", "D9")
def test_the_content_is_served_after_detach(api: Api) -> None:
    selection_id = api.selection("As it was", ("a", "b"))
    snapshot_id = api.snapshot(selection_id)
    before = api.get(snapshot_id).json()
    edited = api.client.put(
        f"/api/v1/selections/{selection_id}",
        json={"title": "Changed", "items": []},
        headers=api.user() | {"If-Match": '"1"'},
    )
    assert edited.status_code == 200
    detached = api.detach(snapshot_id).json()
    after = api.get(snapshot_id)
    assert after.status_code == 200
    assert after.json()["content"] == before["content"]
    assert (before["content"]["title"], before["content"]["items"]) == ("As it was", ["a", "b"])
    assert (before["status"], after.json()["status"]) == ("Active", "Detached")
    assert after.json()["detachedAt"] == detached["detachedAt"]
