"""Taking and getting snapshots (G12), and what the database itself refuses (D9)."""

from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError

from db import selections as store
from pin.clock import utc_now
from pin.rules.contract import Reason
from tests.selections.api import Api, events, refusal, row


@pytest.mark.req("G12")
def test_a_snapshot_is_active_and_holds_what_the_selection_held(api: Api) -> None:
    selection_id, snapshot_id = api.selection("Тітле 🎬", ("один", "two\n", "")), uuid4()
    response = api.create(snapshot_id, selection_id)
    assert response.status_code == 201
    assert response.headers["location"] == f"/api/v1/internal/snapshots/{snapshot_id}"
    answer = response.json()
    assert (answer["snapshotId"], answer["selectionId"]) == (str(snapshot_id), str(selection_id))
    assert (answer["status"], answer["detachedAt"], answer["detachReason"]) == ("Active", None, None)
    content = answer["content"]
    assert (content["title"], content["items"]) == ("Тітле 🎬", ["один", "two\n", ""])
    assert content["selectionId"] == str(selection_id)
    assert content["takenAt"]
    assert api.get(snapshot_id).json() == answer


@pytest.mark.req("G12", "G13")
def test_a_repeat_is_the_same_snapshot_whatever_has_happened_since(api: Api) -> None:
    selection_id, snapshot_id = api.selection(), uuid4()
    first = api.create(snapshot_id, selection_id)
    edit = {"title": "Later", "items": []}
    headers = api.user() | {"If-Match": "*"}
    assert api.client.put(f"/api/v1/selections/{selection_id}", json=edit, headers=headers).status_code == 200
    again = api.create(snapshot_id, selection_id)
    assert (again.status_code, again.json()) == (200, first.json())
    api.detach(snapshot_id)
    late = api.create(snapshot_id, selection_id)
    assert (late.status_code, late.json()["status"]) == (200, "Detached")
    assert late.json()["content"] == first.json()["content"]


@pytest.mark.req("G12")
def test_what_a_create_is_refused_for(api: Api) -> None:
    selection_id, other_id, taken = api.selection(), api.selection(), uuid4()
    api.create(taken, selection_id)
    not_found = (404, "SELECTIONS_SELECTION_NOT_FOUND")
    assert refusal(api.create(taken, other_id)) == (409, "SELECTIONS_SNAPSHOT_ID_CONFLICT")
    assert refusal(api.create(uuid4(), uuid4())) == not_found
    assert refusal(api.create(uuid4(), selection_id, tenantId=str(uuid4()))) == not_found
    assert refusal(api.create(taken, selection_id, tenantId=str(uuid4()))) == not_found
    for name in ("snapshotId", "selectionId", "tenantId", "requestedByUserId"):
        response = api.create(uuid4(), selection_id, **{name: str(UUID(int=0))})
        assert refusal(response) == (400, "VALIDATION_ERROR")
        assert response.json()["errors"][0]["field"] == f"$.{name}"
    assert refusal(api.get(uuid4())) == (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
    assert api.get(taken).json()["selectionId"] == str(selection_id)


@pytest.mark.req("D2", "G12")
def test_only_news_takes_and_gets_snapshots(api: Api) -> None:
    snapshot_id, user = api.snapshot(), api.user()
    api.news, news = user, api.news
    assert refusal(api.get(snapshot_id)) == (403, "FORBIDDEN")
    assert refusal(api.create(uuid4(), uuid4())) == (403, "FORBIDDEN")
    api.news = {}
    assert refusal(api.get(snapshot_id)) == (401, "UNAUTHORIZED")
    assert refusal(api.create(uuid4(), uuid4())) == (401, "UNAUTHORIZED")
    api.news = news
    assert api.get(snapshot_id).status_code == 200


@pytest.mark.req("D9", "D7", "G13")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM selections.snapshot WHERE id = :id",
        "TRUNCATE selections.snapshot CASCADE",
        "UPDATE selections.snapshot SET content = '{}' WHERE id = :id",
        "UPDATE selections.snapshot SET content = NULL WHERE id = :id",
        "UPDATE selections.snapshot SET content = jsonb_set(content, '{title}', '\"x\"') WHERE id = :id",
        "UPDATE selections.snapshot SET selection_id = gen_random_uuid() WHERE id = :id",
        "UPDATE selections.snapshot SET id = gen_random_uuid() WHERE id = :id",
        "UPDATE selections.snapshot SET created_at = created_at + interval '1 s' WHERE id = :id",
        "UPDATE selections.snapshot SET status = 'Detached' WHERE id = :id",
        "UPDATE selections.snapshot SET status = 'Gone' WHERE id = :id",
    ],
)
def test_the_database_refuses_to_delete_a_snapshot_or_to_alter_it(api: Api, engine: Engine, statement: str) -> None:
    active, detached = api.snapshot(), api.snapshot()
    api.detach(detached)
    for snapshot_id in (active, detached):
        before = row(engine, snapshot_id)
        with pytest.raises(DatabaseError), engine.begin() as connection:
            connection.execute(text(statement), {"id": snapshot_id})
        assert row(engine, snapshot_id) == before


@pytest.mark.req("D7", "G13")
def test_the_database_keeps_a_first_detach_and_a_tombstone_for_good(api: Api, engine: Engine) -> None:
    detached, unknown = api.snapshot(), uuid4()
    api.detach(detached)
    api.detach(unknown)
    reopen = text(
        "UPDATE selections.snapshot SET status = 'Active', detached_at = NULL, detach_reason = NULL WHERE id = :id"
    )
    other_reason = text("UPDATE selections.snapshot SET detach_reason = 'PostDeleted' WHERE id = :id")
    for statement, snapshot_id in ((reopen, detached), (other_reason, detached), (reopen, unknown)):
        before = row(engine, snapshot_id)
        with pytest.raises(DatabaseError), engine.begin() as connection:
            connection.execute(statement, {"id": snapshot_id})
        assert row(engine, snapshot_id) == before
    (event,) = events(engine, detached)
    second = text(
        "INSERT INTO selections.snapshot_detached_event VALUES (:id, gen_random_uuid(), 'PostDeleted', :id, now())"
    )
    with pytest.raises(DatabaseError), engine.begin() as connection:
        connection.execute(second, {"id": detached})
    assert events(engine, detached) == [event]


@pytest.mark.req("D9")
def test_detach_neither_reads_nor_writes_content(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    with engine.begin() as connection:
        for statement in (
            "CREATE ROLE blind",
            "GRANT USAGE ON SCHEMA selections TO blind",
            "GRANT SELECT (id, status, version, detached_at, detach_reason) ON selections.snapshot TO blind",
            "GRANT UPDATE (status, version, detached_at, detach_reason, updated_at) ON selections.snapshot TO blind",
            "GRANT SELECT, INSERT ON selections.snapshot_detached_event TO blind",
            "SET LOCAL ROLE blind",
        ):
            connection.execute(text(statement))
        seen = store.read_state(connection, snapshot_id)
        assert seen is not None
        values = {"requested_by_user_id": api.owner, "event_id": uuid4()}
        assert store.detach(connection, seen, reason=Reason.POST_DELETED, now=utc_now(), **values) is not None
        connection.execute(text("RESET ROLE"))
        connection.execute(text("DROP OWNED BY blind"))
        connection.execute(text("DROP ROLE blind"))
    assert row(engine, snapshot_id)["detach_reason"] == "PostDeleted"
