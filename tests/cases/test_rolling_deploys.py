"""Reading is open, writing is closed: either side runs beside an older and a newer release of the other (A51, G26)."""

import json
import time
from collections.abc import Callable
from threading import Event
from typing import Any
from uuid import UUID

import httpx
import pytest
from litestar import Litestar
from sqlalchemy import Engine

from db.outbox.runs import RunResult
from pin.access.machine_tokens import MachineTokens
from pin.clock import new_id
from pin.config.sections import AuthOptions
from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob
from pin.operations.entries import show
from pin.outgoing.selections import SelectionsClient
from pin.rules.contract import DETACH_PATH, SNAPSHOT_PATH, SNAPSHOTS_PATH
from tests.fake_selections import Call, FakeSelections, Script, reply
from tests.job.conftest import MakeJobSettings
from tests.job.scene import USER, active_snapshots, change, history, query, row, rows, stage, working
from tests.news.world import words
from tests.selections.api import Api
from tests.serving import Keys, MakeSettings, bearer
from web.app import create_app

MakeJob = Callable[[Settings], RetryJob]
NEWER = "AuthorBanned"
WIDEN = (
    "ALTER TABLE selections.snapshot DROP CONSTRAINT snapshot_detach_reason_check",
    "ALTER TABLE news.snapshot_detach_outbox DROP CONSTRAINT ck_sdo_reason",
    "ALTER TABLE news.post DROP CONSTRAINT post_status_check",
)
"""What a newer release's migrations have done before its code writes a new word (J9)."""


def id_of(call: Call) -> str:
    return call.path.split("/")[-2] if call.path.endswith("/detach") else call.path.split("/")[-1]


@pytest.mark.case("A51")
@pytest.mark.req("G26", "G4")
@pytest.mark.parametrize(
    "more",
    [
        {"detachedAt": "2026-01-01T00:00:00Z", "detachReason": NEWER},
        {"detachedAt": "2026-01-01T00:00:00Z", "detachReason": "BlockReplaced", "detachedBy": {"kind": "Moderator"}},
        {},
    ],
    ids=["a newer reason", "a newer field", "what an older one had not yet"],
)
def test_news_takes_any_selections_word_for_detached(
    engine: Engine,
    job_settings: MakeJobSettings,
    make_retry_job: MakeJob,
    selections: FakeSelections,
    more: dict[str, Any],
) -> None:
    def answer(call: Call) -> Script:
        return reply(200, json.dumps({"snapshotId": id_of(call), "status": "Detached"} | more).encode())

    selections.answer = answer
    (entry,) = stage(engine, [new_id()])
    settings = job_settings(selections.url)
    with working(settings):
        summary = retry_job.run(make_retry_job(settings), Event())
    assert (summary.result, summary.outcomes.succeeded) == (RunResult.COMPLETED, 1)
    assert row(engine, entry).status == "Done"


@pytest.mark.case("A51")
@pytest.mark.req("G26")
def test_news_reads_snapshots_of_a_newer_selections(selections: FakeSelections, keys: Keys) -> None:
    content = {"selectionId": str(new_id()), "title": "t", "items": ["a"], "takenAt": "2026-01-01T00:00:00Z", "mood": 1}
    newer = {"status": "Frozen", "createdAt": "2026-01-01T00:00:00Z", "detachReason": NEWER, "level": 3}
    wanted = new_id()

    def answer(call: Call) -> Script:
        whole = newer | {"snapshotId": str(wanted), "selectionId": str(new_id()), "content": content}
        listed = {"snapshots": [newer | {"snapshotId": str(wanted)}], "next": None, "total": 1}
        return reply(200, json.dumps(listed if "?" in call.path else whole).encode())

    selections.answer = answer
    settings = Settings(auth=AuthOptions(m2m_private_key=keys.private))
    client = SelectionsClient(selections.url, MachineTokens.from_settings(settings.auth))
    try:
        found = client.find_snapshots([wanted], deadline=time.monotonic() + 10)[wanted]
        page = client.list_snapshots(after=None, limit=10, deadline=time.monotonic() + 10)
    finally:
        client.close()
    assert found is not None
    assert (found.status, found.detach_reason, found.content.items) == ("Frozen", NEWER, ["a"])
    assert [(one.snapshot_id, one.status, one.detach_reason) for one in page.snapshots] == [(wanted, "Frozen", NEWER)]


@pytest.mark.case("A51")
@pytest.mark.req("G26", "D5", "D7")
def test_selections_serves_what_a_newer_selections_wrote(engine: Engine, selections_url: str, keys: Keys) -> None:
    with httpx.Client(base_url=selections_url, trust_env=False) as http:
        api = Api(http, keys)
        newer, plain = api.snapshot(), api.snapshot()
    for statement in WIDEN:
        change(engine, statement)
    change(
        engine,
        """UPDATE selections.snapshot SET status = 'Detached', detached_at = now(), detach_reason = :reason, version = 1
           WHERE id = :id""",
        id=newer,
        reason=NEWER,
    )
    headers = bearer(keys.token(client="news"))
    body = {"reason": "PostDeleted", "requestedByUserId": str(USER)}
    with httpx.Client(base_url=selections_url, headers=headers, trust_env=False) as http:
        got = http.get(SNAPSHOT_PATH.format(id=newer))
        listed = http.get(SNAPSHOTS_PATH)
        again = http.post(DETACH_PATH.format(id=newer), json=body)
        refused = http.post(DETACH_PATH.format(id=plain), json=body | {"reason": NEWER})
    assert (got.status_code, got.json()["detachReason"]) == (200, NEWER)
    assert {one["snapshotId"]: one.get("detachReason") for one in listed.json()["snapshots"]} == {
        str(newer): NEWER,
        str(plain): None,
    }
    assert (again.status_code, again.json()["detachReason"], again.json()["status"]) == (200, NEWER, "Detached")
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR"), "writing is closed"


@pytest.mark.case("A51")
@pytest.mark.req("G26", "D14")
def test_an_older_selections_refuses_a_newer_reason_and_the_entry_can_be_read_and_requeued(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, selections_url: str
) -> None:
    (entry,) = stage(engine, active_snapshots(engine, 1))
    for statement in WIDEN:
        change(engine, statement)
    change(engine, "UPDATE news.snapshot_detach_outbox SET reason = :reason", reason=NEWER)
    settings = job_settings(selections_url)
    with working(settings):
        retry_job.run(make_retry_job(settings), Event())
    found = row(engine, entry)
    assert (found.status, found.last_error) == ("Quarantined", "HTTP 400 VALIDATION_ERROR")
    assert [one.outcome for one in history(engine, entry)] == ["Quarantined"]
    assert query(engine, "SELECT reason FROM news.snapshot_detach_quarantined_event")[0].reason == NEWER
    life = show(engine, entry, now=found.updated_at, retry=settings.retry)
    assert life is not None
    assert {r.status for r in rows(engine)} == {"Quarantined"}


@pytest.mark.case("A51")
@pytest.mark.req("G26", "J22")
def test_news_shows_a_post_of_a_newer_news_and_does_not_change_it(
    engine: Engine,
    database: str,
    app_settings: MakeSettings,
    serve: Callable[[Litestar], str],
    selections_url: str,
    keys: Keys,
) -> None:
    url = serve(create_app(app_settings(database, contexts=("news",), selections_url=selections_url)))
    user, tenant = new_id(), new_id()
    headers = bearer(keys.token(user_id=UUID(str(user)), tenant_id=UUID(str(tenant))))
    with httpx.Client(base_url=f"{url}/api/v1", headers=headers, trust_env=False, timeout=20) as http:
        made = http.post("/posts", json={"title": "t", "blocks": [words("x")]})
        assert made.status_code == 201, made.text
        post = made.json()
        for statement in WIDEN:
            change(engine, statement)
        change(engine, "UPDATE news.post SET status = 'Frozen'")
        got = http.get(f"/posts/{post['id']}")
        etag = {"If-Match": got.headers["etag"]}
        answers = [
            http.put(f"/posts/{post['id']}/blocks", json={"blocks": []}, headers=etag),
            http.post(f"/posts/{post['id']}/publish"),
            http.delete(f"/posts/{post['id']}"),
        ]
    assert (got.status_code, got.json()["status"]) == (200, "Frozen")
    assert [one.status_code for one in answers] == [409, 409, 409]
