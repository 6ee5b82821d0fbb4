"""Two contexts as two servers on one database, and a proxy between them: what every test of news stands on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import httpx
from sqlalchemy import Engine, text
from sqlalchemy.engine import Row

from pin.config.settings import Settings
from tests.news.proxy import Proxy, proxy_to
from tests.serving import Keys, bearer, serving
from web.app import create_app

Body = dict[str, Any]
MakeApp = Callable[..., Settings]


def words(body: str) -> Body:
    """A block of text."""
    return {"kind": "Text", "body": body}


def embed(selection_id: str) -> Body:
    """A block that takes a new snapshot."""
    return {"kind": "SelectionEmbed", "selectionId": selection_id}


def keep(snapshot_id: str) -> Body:
    """A block that goes on showing one."""
    return {"kind": "SelectionEmbed", "snapshotId": snapshot_id}


@dataclass(frozen=True)
class PostAs:
    """A post as an answer had it."""

    id: str
    etag: str
    body: Body

    @property
    def snapshots(self) -> list[str]:
        return [block["snapshotId"] for block in self.body["blocks"] if block["kind"] == "SelectionEmbed"]


@dataclass
class World:
    """`http` is the author's way to news. Everything asked here is answered as it should be, or the test fails."""

    news_url: str
    selections_url: str
    proxy: Proxy
    engine: Engine
    keys: Keys
    settings: Settings
    stop_selections: Callable[[], None]
    tenant: UUID = field(default_factory=uuid4)
    author: UUID = field(default_factory=uuid4)

    def client(self, user: UUID | None = None, tenant: UUID | None = None, url: str | None = None) -> httpx.Client:
        """A user's client for news: the author's unless named otherwise."""
        token = self.keys.token(user_id=user or self.author, tenant_id=tenant or self.tenant)
        base = url or self.news_url
        return httpx.Client(base_url=f"{base}/api/v1", headers=bearer(token), timeout=20, trust_env=False)

    def selection(self, title: str = "Best", items: Sequence[str] = ("a", "b"), tenant: UUID | None = None) -> str:
        """A new selection's id."""
        with self.client(tenant=tenant, url=self.selections_url) as http:
            answer = http.post("/selections", json={"title": title, "items": list(items)})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def post(self, *blocks: Body, published: bool = True) -> PostAs:
        """A new post of the author's, Published unless told otherwise."""
        with self.client() as http:
            answer = http.post("/posts", json={"title": "News", "blocks": list(blocks)})
            assert answer.status_code == 201, answer.text
            if published:
                answer = http.post(f"/posts/{answer.json()['id']}/publish")
                assert answer.status_code == 200, answer.text
        return PostAs(answer.json()["id"], answer.headers["etag"], answer.json())

    def put(self, post: PostAs, *blocks: Body, etag: str | None = None) -> httpx.Response:
        """set-blocks by the author, under the ETag that the post was seen with."""
        with self.client() as http:
            headers = {"if-match": etag or post.etag}
            return http.put(f"/posts/{post.id}/blocks", json={"blocks": list(blocks)}, headers=headers)

    def set(self, post: PostAs, *blocks: Body) -> PostAs:
        """set-blocks that succeeds."""
        answer = self.put(post, *blocks)
        assert answer.status_code == 200, answer.text
        return PostAs(post.id, answer.headers["etag"], answer.json())

    def delete(self, post: PostAs) -> httpx.Response:
        """delete-post by the author."""
        with self.client() as http:
            return http.delete(f"/posts/{post.id}")

    def get(self, post: PostAs, version: int | None = None) -> Body:
        """The post rendered, or a version of it."""
        ending = "" if version is None else f"/versions/{version}"
        with self.client() as http:
            answer = http.get(f"/posts/{post.id}{ending}")
        assert answer.status_code == 200, answer.text
        found: Body = answer.json()
        return found

    def rows(self, statement: str, **values: Any) -> Sequence[Row[Any]]:
        """What the database says."""
        with self.engine.connect() as connection:
            return connection.execute(text(statement), values).all()

    def execute(self, statement: str, **values: Any) -> None:
        """Do something to the database."""
        with self.engine.begin() as connection:
            connection.execute(text(statement), values)

    def intents(self, *, guards: bool = False) -> Sequence[Row[Any]]:
        """The outbox, oldest first: the intents, or the guards."""
        return self.rows(
            "SELECT * FROM news.snapshot_detach_outbox WHERE is_guard = :guards ORDER BY created_at, id", guards=guards
        )

    def snapshot(self, snapshot_id: str | UUID) -> Row[Any]:
        """A snapshot as selections has it."""
        return self.rows("SELECT * FROM selections.snapshot WHERE id = :id", id=snapshot_id)[0]


@contextmanager
def world_on(engine: Engine, database: str, keys: Keys, app_settings: MakeApp, **changed: Any) -> Iterator[World]:
    """A world whose news has these settings; both servers stop after."""
    with ExitStack() as stack, ExitStack() as selections:
        url = selections.enter_context(serving(create_app(app_settings(database, contexts=("selections",)))))
        proxy = stack.enter_context(proxy_to(url))
        settings = app_settings(database, contexts=("news",), selections_url=proxy.url, **changed)
        news_url = stack.enter_context(serving(create_app(settings)))
        yield World(news_url, url, proxy, engine, keys, settings, selections.close)
