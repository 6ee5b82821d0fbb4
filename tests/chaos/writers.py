"""A steady load of writes over HTTP, several authors at a time; what was acknowledged is remembered."""

import collections
import random
import threading
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pin.demo.api import Answered, Api, RefusedError

Block = dict[str, Any]

_PAUSE = 0.12  # seconds between two requests of an author
_ENOUGH_POSTS = 1500


@dataclass(slots=True)
class Post:
    """A post as an author saw it last. `etag` is None when the last answer was lost: it is read again before use."""

    id: str
    etag: str | None
    blocks: list[Block]
    status: str


@dataclass(slots=True)
class Ledger:
    """What came back. `revisions` has, for each post, the highest revision that a 2xx told."""

    ok: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: collections.Counter[str] = field(default_factory=collections.Counter)
    revisions: dict[UUID, int] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)


class Writers:
    """Authors at work from `start` until `stop`. A refused or lost request is counted, and the author goes on."""

    def __init__(self, news: Api, selections: Api, *, authors: int, seed: int) -> None:
        self.ledger = Ledger()
        self._news = news
        self._selections = selections
        self._ids: list[str] = []
        self._posts: list[Post] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(f"{seed} {number}"),), name=f"author-{number}")  # noqa: S311 - no secret
            for number in range(authors)
        ]

    def make_selections(self, count: int = 5) -> None:
        """Something to embed. Raises RefusedError."""
        for number in range(count):
            body = {"title": f"Selection {number}", "items": ["a", "b"]}
            self._ids.append(self._selections.call("POST", "/api/v1/selections", body).body["id"])

    def embed(self) -> Block:
        """A block that wants a new snapshot."""
        return {"kind": "SelectionEmbed", "selectionId": self._ids[0]}

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let every author finish the request under way. Raises what went wrong in the harness itself."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        if self._broken:
            raise self._broken[0]

    def _write(self, chance: random.Random) -> None:
        try:
            while not self._stopping.wait(_PAUSE * chance.uniform(0.5, 1.5)):
                self._one(chance)
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self._broken.append(error)

    def _one(self, chance: random.Random) -> None:
        with self._lock:
            posts = [post for post in self._posts if post.status != "Archived"]
        if not posts or (len(posts) < _ENOUGH_POSTS and chance.random() < 0.3):
            self._attempt("create", lambda: self._create(chance))
            return
        post = chance.choice(posts)
        if post.etag is None and not self._attempt("read", lambda: self._read(post)):
            return
        deeds = [("replace by an embed", 4), ("replace by text", 3), ("delete", 2), ("publish", 4), ("unpublish", 1)]
        deed = chance.choices([name for name, _ in deeds], [weight for _, weight in deeds])[0]
        if deed == "delete" and post.status == "Draft":
            deed = "publish"
        if (deed, post.status) in {("publish", "Published"), ("unpublish", "Draft"), ("unpublish", "Unpublished")}:
            deed = "replace by an embed"
        if not self._attempt(deed, lambda: self._change(deed, post, chance)):
            post.etag = None

    def _attempt(self, name: str, deed: Any) -> bool:
        try:
            deed()
        except RefusedError:
            with self._lock:
                self.ledger.failed[name] += 1
            return False
        with self._lock:
            self.ledger.ok[name] += 1
        return True

    def _create(self, chance: random.Random) -> None:
        blocks = [{"kind": "Text", "body": "a post"}, *(self._embed(chance) for _ in range(chance.randrange(4)))]
        answer = self._news.call("POST", "/api/v1/posts", {"title": "A post", "blocks": blocks})
        post = Post(answer.body["id"], answer.etag, answer.body["blocks"], answer.body["status"])
        self._acknowledged(post, answer)
        with self._lock:
            self._posts.append(post)

    def _read(self, post: Post) -> None:
        answer = self._news.call("GET", f"/api/v1/posts/{post.id}")
        post.etag, post.status, post.blocks = answer.etag, answer.body["status"], answer.body["blocks"]

    def _change(self, deed: str, post: Post, chance: random.Random) -> None:
        path, etag = f"/api/v1/posts/{post.id}", post.etag
        if deed == "delete":
            self._news.call("DELETE", path, etag=etag)
            post.status = "Archived"
            with self._lock:
                self.ledger.deleted.add(UUID(post.id))
            return
        if deed in {"publish", "unpublish"}:
            answer = self._news.call("POST", f"{path}/{deed}", etag=etag)
        else:
            embeds = [{"kind": b["kind"], "snapshotId": b["snapshotId"]} for b in post.blocks if "snapshotId" in b]
            new = self._embed(chance) if deed == "replace by an embed" else {"kind": "Text", "body": "no embed"}
            answer = self._news.call("PUT", f"{path}/blocks", {"blocks": [new, *embeds[1:]]}, etag)
        post.blocks = answer.body["blocks"]
        post.etag, post.status = answer.etag, answer.body["status"]
        self._acknowledged(post, answer)

    def _acknowledged(self, post: Post, answer: Answered) -> None:
        with self._lock:
            known = self.ledger.revisions.get(UUID(post.id), 0)
            self.ledger.revisions[UUID(post.id)] = max(known, int(answer.body["revision"]))

    def _embed(self, chance: random.Random) -> Block:
        return {"kind": "SelectionEmbed", "selectionId": chance.choice(self._ids)}
