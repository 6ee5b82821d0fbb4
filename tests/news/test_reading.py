"""Old versions render what they showed, and news is read whether or not selections answers (J22, J32, D16.7)."""

import threading
from uuid import UUID, uuid4

import pytest

from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.news.contents import Contents
from pin.news.errors import NewsError
from pin.outgoing.selections import SelectionsClient
from tests.news.proxy import Exchange
from tests.news.world import World, embed, words
from tests.serving import serving
from web.app import create_app
from web.news.problems import _PROBLEMS

pytestmark = pytest.mark.timeout(120)


@pytest.mark.req("J22", "D16.7")
def test_old_versions_render_after_detach_and_after_archiving(world: World) -> None:
    first = world.post(embed(world.selection("One", ["1"])), words("x"))
    second = world.set(first, embed(world.selection("Two", ["2"])))
    world.delete(second)
    assert {world.snapshot(one).status for one in (*first.snapshots, *second.snapshots)} == {"Detached"}
    with serving(create_app(world.settings)) as fresh:  # knows no content yet
        for user in (world.author, uuid4()):
            with world.client(user=user, url=fresh) as http:
                answers = [http.get(f"/posts/{first.id}/versions/{number}").json() for number in (1, 2)]
                now = http.get(f"/posts/{first.id}").json()
            assert [one["blocks"][0]["content"]["items"] for one in answers] == [["1"], ["2"]]
            assert [one["blocks"][0]["contentUnavailable"] for one in answers] == [False, False]
            assert answers[0]["blocks"][1] == words("x")
            assert [(one["version"], one["status"], one["createdBy"]) for one in answers] == [
                (1, "Archived", str(world.author)),
                (2, "Archived", str(world.author)),
            ]
            assert now["blocks"] == answers[1]["blocks"]


@pytest.mark.req("J22")
def test_an_edited_selection_changes_no_snapshot_of_it(world: World) -> None:
    selection = world.selection("Old", ["old"])
    post = world.post(embed(selection))
    with world.client(url=world.selections_url) as http:
        body = {"title": "New", "items": ["new"]}
        assert http.put(f"/selections/{selection}", json=body, headers={"if-match": "*"}).status_code == 200
    with serving(create_app(world.settings)) as fresh, world.client(url=fresh) as http:
        assert http.get(f"/posts/{post.id}").json()["blocks"][0]["content"]["title"] == "Old"


@pytest.mark.req("J32", "J22")
def test_a_post_is_read_without_contents_while_selections_is_away(world: World) -> None:
    post = world.post(embed(world.selection()), words("x"))
    world.stop_selections()
    known = world.get(post)["blocks"][0]
    assert (known["content"]["items"], known["contentUnavailable"]) == (["a", "b"], False)
    with serving(create_app(world.settings)) as fresh, world.client(url=fresh) as http:
        for path in (f"/posts/{post.id}", f"/posts/{post.id}/versions/1"):
            answer = http.get(path)
            assert answer.status_code == 200
            assert answer.json()["blocks"] == [
                {
                    "kind": "SelectionEmbed",
                    "snapshotId": post.snapshots[0],
                    "content": None,
                    "contentUnavailable": True,
                },
                words("x"),
            ]


@pytest.mark.req("J32")
@pytest.mark.case("A4")
def test_a_reader_waits_for_contents_no_longer_than_their_deadline(world: World) -> None:
    post = world.post(embed(world.selection()))
    world.proxy.does = Exchange.hang
    with serving(create_app(world.settings)) as fresh, world.client(url=fresh) as http:
        answer = http.get(f"/posts/{post.id}", timeout=6)
    assert answer.json()["blocks"][0]["contentUnavailable"]


@pytest.mark.req("G12")
def test_a_version_that_never_was_is_not_found(world: World) -> None:
    post = world.post(words("x"))
    with world.client() as http:
        for number in ("0", "2", str(2**31), str(2**63)):
            answer = http.get(f"/posts/{post.id}/versions/{number}")
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), number
        for number in ("x", "-1", "1.0", "٣"):
            assert http.get(f"/posts/{post.id}/versions/{number}").json()["code"] == "VALIDATION_ERROR", number
        assert http.get(f"/posts/{uuid4()}/versions/1").json()["code"] == "NEWS_POST_NOT_FOUND"


@pytest.mark.req("J22")
@pytest.mark.parametrize("characters", [500])
def test_the_largest_selection_can_be_shown(world: World, characters: int) -> None:
    items = ["x" * characters] * 500
    post = world.post(embed(world.selection("Long", items)))
    with serving(create_app(world.settings)) as fresh, world.client(url=fresh) as http:
        assert http.get(f"/posts/{post.id}").json()["blocks"][0]["content"]["items"] == items


@pytest.mark.req("J22")
def test_contents_are_fetched_once_and_the_longest_unused_make_room(world: World) -> None:
    post = world.post(*[embed(world.selection(str(number))) for number in range(3)])
    one, two, three = map(UUID, post.snapshots)
    client = SelectionsClient(world.proxy.url, TokenSource.from_settings(world.settings.auth))
    contents = Contents(capacity=2)

    def fetched(*wanted: UUID) -> set[str]:
        world.proxy.seen.clear()
        assert contents.of(wanted, client).keys() == set(wanted)
        return {path.rpartition("/")[2] for path in world.proxy.calls("GET")}

    try:
        assert fetched(one, two) == {str(one), str(two)}
        assert fetched(one) == set()
        assert fetched(three) == {str(three)}
        assert fetched(one, three) == set()
        assert fetched(two) == {str(two)}
        assert fetched(one, two, three) != set()
        readers = [threading.Thread(target=contents.of, args=((one, two, three), client)) for _ in range(8)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(10)
        assert len(contents._kept) == 2
    finally:
        client.close()


@pytest.mark.req("G12")
def test_every_refusal_has_its_problem() -> None:
    def leaves(kind: type[Exception]) -> set[type[Exception]]:
        return {kind}.union(*(leaves(one) for one in kind.__subclasses__()))

    named = {kind.__name__ for kind in leaves(NewsError)} - {"NewsError", "BlockRefused"}
    assert named < {kind.__name__ for kind in _PROBLEMS}
