"""The interface under abuse and load: whatever is sent, the answer is one that the document names, never a fault."""

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode
from sqlalchemy import Engine

from db.connect import make_engine
from pin.rules.contract import DETACH_PATH, Reason
from tests.news.world import PostAs, World, embed, keep, words, world_on
from tests.serving import Keys, bearer, settings_for
from web.openapi import OPENAPI_PATH

UNROUTED = {(404, "NOT_FOUND"), (405, "METHOD_NOT_ALLOWED")}
"""What the document says of paths that lead to no operation: an id that is empty or holds a slash makes one."""
EXAMPLES = 50


@pytest.fixture(scope="module")
def engine(database: str) -> Iterator[Engine]:
    made = make_engine(database)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def world(database: str, engine: Engine, keys: Keys) -> Iterator[World]:
    """Both contexts over real HTTP."""
    with world_on(engine, database, keys, lambda url, **changed: settings_for(keys, url, **changed)) as made:
        yield made


@dataclass(frozen=True)
class Known:
    """Ids that lead somewhere and one that leads nowhere, by the name of the path's parameter, and who may ask."""

    ids: dict[str, list[str]]
    tokens: list[dict[str, str]]


@pytest.fixture(scope="module")
def known(world: World) -> Known:
    selection = world.selection()
    posts = [world.post(embed(selection), words("w")), world.post(embed(selection), published=False)]
    snapshots = [snapshot for post in posts for snapshot in post.snapshots]
    tokens = [
        bearer(world.keys.token(client="news")),
        bearer(world.keys.token(user_id=world.author, tenant_id=world.tenant)),
        bearer(world.keys.token(user_id=uuid4(), tenant_id=world.tenant)),
        bearer(world.keys.token(client="other")),
        bearer("not.a.token"),
        {"Authorization": "Basic cGluOnBpbg=="},
        {},
    ]
    ids = {
        "snapshot_id": [*snapshots, str(uuid4())],
        "selection_id": [selection, str(uuid4())],
        "post_id": [*(post.id for post in posts), str(uuid4())],
        "version": ["1", "7"],
    }
    return Known(ids, tokens)


def operations(url: str) -> dict[str, Any]:
    """The document's operations, by their id."""
    document = httpx.get(url + OPENAPI_PATH, trust_env=False).json()
    found: list[Any] = [result.ok() for result in schemathesis.openapi.from_dict(document).get_all_operations()]  # type: ignore[union-attr]
    return {f"{one.method.upper()} {one.path}": one for one in found}


def check(operation: Any, status: int, content_type: str, content: bytes, sent: str) -> None:
    """The answer is one of those that the document gives for the operation."""
    written: dict[str, Any] = operation.definition.raw["responses"]
    assert status < 500, (sent, status, content)
    if status < 400:
        assert str(status) in written, (sent, status)
        return
    assert content_type == "application/problem+json", (sent, status, content)
    problem = json.loads(content)
    assert problem["status"] == status
    if (status, problem["code"]) in UNROUTED:
        return
    assert str(status) in written, (sent, status, content)
    schema = written[str(status)]["content"]["application/problem+json"]["schema"]
    assert problem["code"] in schema["allOf"][1]["properties"]["code"]["enum"], (sent, problem)


@pytest.mark.req("C5", "D3", "G10")
@pytest.mark.case("A21", "A20")
@pytest.mark.parametrize("context", ["selections", "news"])
def test_whatever_is_sent_is_answered_as_the_document_says(world: World, known: Known, context: str) -> None:
    url = world.selections_url if context == "selections" else world.news_url
    with requests.Session() as session:
        session.trust_env = False
        seen: Counter[int] = Counter()
        for name, operation in operations(url).items():
            seen += _fuzz(session, url, name, operation, known)
    assert {200, 400, 401, 403, 404} <= set(seen), "valid and invalid requests have both got through"


def _fuzz(session: requests.Session, url: str, name: str, operation: Any, known: Known) -> Counter[int]:
    seen: Counter[int] = Counter()
    strategy = st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        if operation.body or operation.path_parameters or operation.headers or operation.query
        else st.nothing(),
    )

    @seed(int(os.environ.get("PIN_TEST_SEED", "20260301")))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, token=st.sampled_from(known.tokens), pick=st.integers(0, 5))
    def send(case: Any, token: dict[str, str], pick: int) -> None:
        for parameter, ids in known.ids.items():
            if parameter in (case.path_parameters or {}) and pick < 4:
                case.path_parameters[parameter] = ids[pick % len(ids)]
        case.headers.pop("Authorization", None)
        answer = case.call(base_url=url, session=session, headers=dict(token), allow_redirects=False, timeout=20)
        seen[answer.status_code] += 1
        (content_type,) = answer.headers.get("content-type", [""])
        check(
            operation, answer.status_code, content_type, answer.content, f"{name} {case.path_parameters} {case.body!r}"
        )

    send()
    return seen


@pytest.mark.req("D8", "D7", "G15", "J21", "J32")
@pytest.mark.case("A19")
def test_set_blocks_and_detach_from_many_clients_at_once(world: World) -> None:
    """Four authors rewrite posts of their own, four fight over one, twenty detach one snapshot for two reasons."""
    selection, rounds = world.selection(), 5
    own = [world.post(embed(selection)) for _ in range(4)]
    shared = world.post(embed(selection), words("shared"))
    fought_over = UUID(world.post(embed(selection)).snapshots[0])
    start = threading.Barrier(4 + 4 + 20)

    def rewrite(post: PostAs) -> PostAs:
        start.wait(30)
        for number in range(rounds):
            blocks = (
                [embed(selection), words(str(number))] if number % 2 else [keep(post.snapshots[0]), embed(selection)]
            )
            post = world.set(post, *blocks)
        return post

    def fight(_number: int) -> list[int]:
        start.wait(30)
        statuses = []
        for _ in range(rounds):
            with world.client() as http:
                etag = http.get(f"/posts/{shared.id}").headers["etag"]
            statuses.append(world.put(shared, embed(selection), etag=etag).status_code)
        return statuses

    def detach(number: int) -> tuple[int, str]:
        body = {"reason": list(Reason)[number % 2], "requestedByUserId": str(uuid4())}
        path = world.selections_url + DETACH_PATH.format(id=fought_over)
        headers = bearer(world.keys.token(client="news"))
        start.wait(30)
        answer = httpx.post(path, json=body, headers=headers, timeout=20, trust_env=False)
        return answer.status_code, answer.json()["detachReason"]

    with ThreadPoolExecutor(28) as pool:
        rewriting = [pool.submit(rewrite, post) for post in own]
        fighting = [pool.submit(fight, number) for number in range(4)]
        detaching = [pool.submit(detach, number) for number in range(20)]
        posts = [future.result(60) for future in rewriting]
        statuses = Counter(status for future in fighting for status in future.result(60))
        detached = {future.result(60) for future in detaching}

    assert set(statuses) <= {200, 412}
    assert statuses[200] >= 1
    assert len(detached) == 1, "one reason stays, and everybody is told the same"
    assert next(iter(detached))[0] == 200
    _as_it_must_be(world, [post.id for post in [*posts, shared]], fought_over)


def _as_it_must_be(world: World, posts: list[str], fought_over: UUID) -> None:
    """What a post shows is Active; what it showed is Detached or has its intent; one event a snapshot."""
    shown = world.rows(
        "SELECT s.status FROM news.post p JOIN news.post_block b ON b.post_id = p.id AND b.version = p.version"
        " JOIN selections.snapshot s ON s.id = b.snapshot_id WHERE p.id = ANY(CAST(:posts AS uuid[]))",
        posts=posts,
    )
    assert {row.status for row in shown} == {"Active"}
    lost = world.rows(
        "SELECT b.snapshot_id FROM news.post_block b JOIN selections.snapshot s ON s.id = b.snapshot_id"
        " JOIN news.post p ON p.id = b.post_id"
        " WHERE p.id = ANY(CAST(:posts AS uuid[])) AND b.version < p.version AND s.status = 'Active'"
        " AND NOT EXISTS (SELECT FROM news.post_block n WHERE n.post_id = p.id AND n.version = p.version"
        "                 AND n.snapshot_id = b.snapshot_id)"
        " AND NOT EXISTS (SELECT FROM news.snapshot_detach_outbox o WHERE o.snapshot_id = b.snapshot_id"
        "                 AND o.status <> 'Done')",
        posts=posts,
    )
    assert lost == []
    events = world.rows("SELECT FROM selections.snapshot_detached_event WHERE snapshot_id = :id", id=fought_over)
    assert len(events) == 1
