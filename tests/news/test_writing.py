"""Posts and their blocks over HTTP: what changes, what is refused, and what is detached (G12, G14, J21, D13)."""

from typing import Any
from uuid import uuid4

import pytest

from tests.news.world import World, embed, keep, words
from tests.serving import bearer

pytestmark = pytest.mark.timeout(120)


@pytest.mark.req("G12")
def test_a_post_is_created_as_a_draft_with_its_snapshots(world: World) -> None:
    selection = world.selection("Best", ["a", "b"])
    with world.client() as http:
        made = http.post("/posts", json={"title": "News", "blocks": [words("hello"), embed(selection)]})
        assert made.status_code == 201
        assert made.headers["etag"] == '"1"'
        read = http.get(made.headers["location"].removeprefix("/api/v1"))
    assert read.headers["etag"] == '"1"'
    body = read.json()
    assert (body["status"], body["version"], body["authorId"]) == ("Draft", 1, str(world.author))
    text, shown = body["blocks"]
    assert text == {"kind": "Text", "body": "hello"}
    assert shown["snapshotId"] == made.json()["blocks"][1]["snapshotId"]
    assert not shown["contentUnavailable"]
    assert shown["content"]["items"] == ["a", "b"]
    snapshot = world.snapshot(shown["snapshotId"])
    assert (snapshot.status, str(snapshot.selection_id)) == ("Active", selection)
    assert not world.intents(guards=True)


@pytest.mark.req("J21", "J18", "J19")
def test_set_blocks_detaches_what_it_replaces_or_drops_and_keeps_the_rest(world: World) -> None:
    selection = world.selection()
    post = world.post(embed(selection), embed(selection), embed(selection))
    replaced, kept, dropped = post.snapshots
    after = world.set(post, embed(selection), keep(kept), words("no more"))
    assert after.snapshots[1] == kept
    assert [world.snapshot(one).status for one in after.snapshots] == ["Active", "Active"]
    for gone in (replaced, dropped):
        snapshot = world.snapshot(gone)
        assert (snapshot.status, snapshot.detach_reason) == ("Detached", "BlockReplaced")
    intents = world.intents()
    assert {str(intent.snapshot_id) for intent in intents} == {replaced, dropped}
    for intent in intents:
        assert (intent.status, intent.attempts, intent.last_error) == ("Done", 0, None)
        assert (str(intent.post_id), intent.requested_by_user_id) == (post.id, world.author)
    assert not world.intents(guards=True)


@pytest.mark.req("J21")
def test_a_change_of_text_detaches_nothing(world: World) -> None:
    post = world.post(embed(world.selection()))
    after = world.set(post, words("before"), keep(post.snapshots[0]))
    assert after.snapshots == post.snapshots
    assert after.body["version"] == 2
    assert not world.intents()
    assert not world.proxy.calls("POST", "/detach")


@pytest.mark.req("J21", "J18", "J19")
@pytest.mark.parametrize("unpublished", [False, True])
def test_deleting_a_post_archives_it_and_detaches_all_it_shows(world: World, unpublished: bool) -> None:
    selection = world.selection()
    post = world.post(embed(selection), words("x"), embed(selection))
    with world.client() as http:
        if unpublished:
            assert http.post(f"/posts/{post.id}/unpublish").status_code == 200
    assert not world.intents()
    assert world.delete(post).status_code == 204
    assert world.get(post)["status"] == "Archived"
    for one in post.snapshots:
        assert (world.snapshot(one).status, world.snapshot(one).detach_reason) == ("Detached", "PostDeleted")
    assert [(i.reason, i.status, i.attempts) for i in world.intents()] == [("PostDeleted", "Done", 0)] * 2


@pytest.mark.req("J21")
def test_deleting_an_archived_post_again_answers_as_the_first_time_and_changes_nothing(world: World) -> None:
    post = world.post(embed(world.selection()))
    with world.client() as http:
        first = http.delete(f"/posts/{post.id}", headers={"if-match": post.etag})
        before = (world.rows("SELECT * FROM news.post"), world.intents(), list(world.proxy.seen))
        again = http.delete(f"/posts/{post.id}", headers={"if-match": post.etag})
    assert (first.status_code, again.status_code) == (204, 204)
    assert first.content == again.content
    assert (world.rows("SELECT * FROM news.post"), world.intents(), world.proxy.seen) == before


@pytest.mark.req("J21")
def test_deleting_a_draft_is_refused_and_changes_nothing(world: World) -> None:
    post = world.post(embed(world.selection()), published=False)
    before = world.rows("SELECT * FROM news.post")
    answer = world.delete(post)
    assert (answer.status_code, answer.json()["code"]) == (409, "NEWS_POST_STATE_CONFLICT")
    assert world.rows("SELECT * FROM news.post") == before
    assert not world.intents()
    assert world.snapshot(post.snapshots[0]).status == "Active"


@pytest.mark.req("J21", "G12")
def test_publishing_and_unpublishing_detach_nothing_and_know_their_statuses(world: World) -> None:
    post = world.post(embed(world.selection()), published=False)
    seen = []
    with world.client() as http:
        for act in ("unpublish", "publish", "publish", "unpublish", "unpublish", "publish"):
            answer = http.post(f"/posts/{post.id}/{act}")
            seen.append((answer.status_code, answer.json().get("status")))
        stale = http.post(f"/posts/{post.id}/unpublish", headers={"if-match": post.etag})
    assert [status for status, _ in seen] == [409, 200, 409, 200, 409, 200]
    assert stale.status_code == 412
    assert world.get(post)["status"] == "Published"
    assert not world.intents()
    assert world.snapshot(post.snapshots[0]).status == "Active"


@pytest.mark.req("G12")
def test_set_blocks_needs_the_etag_that_is_current(world: World) -> None:
    post = world.post(words("1"))
    with world.client() as http:
        without = http.put(f"/posts/{post.id}/blocks", json={"blocks": []})
    assert (without.status_code, without.json()["code"]) == (428, "PRECONDITION_REQUIRED")
    for stale in ('"1"', f"W/{post.etag}", '"x"', "2"):
        answer = world.put(post, words("lost"), etag=stale)
        assert (answer.status_code, answer.json()["code"]) == (412, "PRECONDITION_FAILED"), stale
        assert answer.headers["etag"] == post.etag
    assert world.get(post)["blocks"] == [words("1")]
    assert world.put(post, words("2"), etag=f'"7", {post.etag}').headers["etag"] == '"3"'
    assert world.put(post, words("3"), etag="*").headers["etag"] == '"4"'
    assert world.get(post)["blocks"] == [words("3")]


@pytest.mark.req("J21")
def test_an_archived_post_cannot_be_changed(world: World) -> None:
    post = world.post(words("1"))
    world.delete(post)
    with world.client() as http:
        answers = [
            world.put(post, embed(world.selection()), etag="*"),
            http.post(f"/posts/{post.id}/publish"),
            http.post(f"/posts/{post.id}/unpublish"),
        ]
    assert [(a.status_code, a.json()["code"]) for a in answers] == [(409, "NEWS_POST_STATE_CONFLICT")] * 3
    assert not world.intents(guards=True)


@pytest.mark.req("G14")
def test_a_block_may_keep_only_what_the_current_version_shows(world: World) -> None:
    selection = world.selection()
    other = world.post(embed(selection))
    first = world.post(embed(selection), embed(selection))
    older, shown = first.snapshots
    post = world.set(first, keep(shown))
    for foreign in (other.snapshots[0], older, str(uuid4())):
        answer = world.put(post, words("x"), keep(foreign), embed(selection))
        assert (answer.status_code, answer.json()["code"]) == (409, "NEWS_SNAPSHOT_NOT_SHOWN")
        assert answer.json()["errors"][0]["field"] == "$.blocks[1].snapshotId"
    twice = world.put(post, keep(shown), keep(shown))
    assert (twice.status_code, twice.json()["code"]) == (400, "VALIDATION_ERROR")
    with world.client() as http:
        created = http.post("/posts", json={"title": "Thief", "blocks": [keep(shown)]})
    assert created.json()["code"] == "NEWS_SNAPSHOT_NOT_SHOWN"
    assert world.get(post)["version"] == 2
    assert not world.intents(guards=True)
    assert world.snapshot(other.snapshots[0]).status == "Active"


@pytest.mark.req("G12")
def test_another_tenants_selection_is_no_selection(world: World) -> None:
    post = world.post(words("1"))
    strange = world.selection(tenant=uuid4())
    for selection in (strange, str(uuid4())):
        answer = world.put(post, words("x"), embed(selection))
        assert (answer.status_code, answer.json()["code"]) == (400, "SELECTIONS_SELECTION_NOT_FOUND")
        assert answer.json()["errors"][0]["field"] == "$.blocks[1].selectionId"
    assert world.get(post)["version"] == 1


@pytest.mark.req("D13")
def test_a_reader_who_is_not_the_author_changes_nothing_and_calls_nobody(world: World) -> None:
    selection = world.selection()
    post = world.post(embed(selection))
    before = (world.rows("SELECT * FROM news.post"), world.rows("SELECT * FROM news.post_version"))
    world.proxy.seen.clear()
    with world.client(user=uuid4()) as http:
        blocks = {"blocks": [embed(selection)]}
        answers = [
            http.put(f"/posts/{post.id}/blocks", json=blocks, headers={"if-match": post.etag}),
            http.put(f"/posts/{post.id}/blocks", json=blocks, headers={"if-match": '"99"'}),
            http.post(f"/posts/{post.id}/publish"),
            http.post(f"/posts/{post.id}/unpublish"),
            http.delete(f"/posts/{post.id}"),
        ]
        assert [(a.status_code, a.json()["code"]) for a in answers] == [(403, "FORBIDDEN")] * 5
        assert not world.proxy.seen
        assert http.get(f"/posts/{post.id}").json()["blocks"][0]["content"]["items"] == ["a", "b"]
    assert not world.rows("SELECT * FROM news.snapshot_detach_outbox")
    assert (world.rows("SELECT * FROM news.post"), world.rows("SELECT * FROM news.post_version")) == before


@pytest.mark.req("D13", "G12")
def test_another_tenants_post_does_not_exist(world: World) -> None:
    post = world.post(words("1"))
    for user in (uuid4(), world.author):
        with world.client(user=user, tenant=uuid4()) as http:
            answers = [
                http.get(f"/posts/{post.id}"),
                http.get(f"/posts/{post.id}/versions/1"),
                http.put(f"/posts/{post.id}/blocks", json={"blocks": []}, headers={"if-match": "*"}),
                http.post(f"/posts/{post.id}/unpublish"),
                http.delete(f"/posts/{post.id}"),
            ]
        assert [(a.status_code, a.json()["code"]) for a in answers] == [(404, "NEWS_POST_NOT_FOUND")] * 5
    assert world.get(post)["status"] == "Published"


@pytest.mark.req("G10")
def test_nobody_and_a_client_are_no_users(world: World) -> None:
    with world.client() as http:
        assert http.get(f"/posts/{uuid4()}", headers={"authorization": ""}).status_code == 401
        m2m = bearer(world.keys.token(client="news"))
        assert http.post("/posts", content=b"{", headers=m2m).json()["code"] == "FORBIDDEN"


def _long(number: int) -> list[dict[str, Any]]:
    return [words("x")] * number


@pytest.mark.req("G12")
@pytest.mark.case("A21")
@pytest.mark.parametrize(
    "blocks",
    [
        [words("a\0b")],
        [words("x" * 20_001)],
        _long(201),
        [{"kind": "SelectionEmbed"}],
        [{"kind": "SelectionEmbed", "selectionId": str(uuid4()), "snapshotId": str(uuid4())}],
        [{"kind": "SelectionEmbed", "selectionId": None}],
        [{"kind": "SelectionEmbed", "selectionId": "00000000-0000-0000-0000-000000000000"}],
        [{"kind": "Text"}],
        [{"kind": "Text", "body": "x", "snapshotId": str(uuid4())}],
        [{"kind": "Image", "body": "x"}],
        [{"body": "x"}],
        None,
        {},
    ],
)
def test_what_is_no_list_of_blocks_is_refused_whole(world: World, blocks: Any) -> None:
    with world.client() as http:
        answer = http.post("/posts", json={"title": "News", "blocks": blocks})
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert not world.rows("SELECT * FROM news.post")
    assert not world.rows("SELECT * FROM news.snapshot_detach_outbox")


@pytest.mark.req("G12")
def test_bounds_and_odd_texts(world: World) -> None:
    with world.client() as http:
        for title in ("", " ", "x" * 201, "a\0", None, 1):
            assert http.post("/posts", json={"title": title}).status_code == 400, title
        whole = http.post("/posts", json={"title": "x" * 200, "blocks": [words("ю" * 20_000), *_long(199)]})
        assert whole.status_code == 201
        assert http.get(f"/posts/{whole.json()['id']}").json()["blocks"][0]["body"] == "ю" * 20_000
        odd = "\u202e<script>\U0001f600\r\n\t\x1b]52;;x\x07"
        assert http.post("/posts", json={"title": "odd", "blocks": [words(odd)]}).json()["blocks"] == [words(odd)]
        for bad in ("xyz", "00000000-0000-0000-0000-000000000000", f"{{{uuid4()}}}"):
            assert http.get(f"/posts/{bad}").json()["code"] == "VALIDATION_ERROR"
        assert http.get(f"/posts/{uuid4()}").json()["code"] == "NEWS_POST_NOT_FOUND"
