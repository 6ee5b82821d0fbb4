"""The story's deeds, all through the HTTP API, and what must follow from each: `Ledger` and `Written`."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from pin.demo.api import Answered, Api
from pin.rules.contract import Reason

Block = dict[str, Any]
T = TypeVar("T")

_AT_ONCE = 6  # requests in flight


@dataclass(slots=True)
class Written:
    """A post as its author last saw it. `shown` holds, for each version, its snapshots and their titles."""

    id: str
    etag: str
    blocks: list[Block]
    shown: list[dict[UUID, str]] = field(default_factory=list)
    deleted: bool = False

    @property
    def embeds(self) -> list[Block]:
        """The blocks that show a snapshot."""
        return [block for block in self.blocks if "snapshotId" in block]


@dataclass(slots=True)
class Ledger:
    """What the deeds so far demand: for each snapshot None (shown) or the reason it must be detached with."""

    posts: list[Written] = field(default_factory=list)
    snapshots: dict[UUID, Reason | None] = field(default_factory=dict)


class Story:
    """An author at work. Each deed raises RefusedError unless the API says that it is done."""

    def __init__(self, news: Api, selections: Api) -> None:
        self.news = news
        self.selections = selections
        self.ledger = Ledger()
        self._titles: dict[str, str] = {}
        self._lock = threading.Lock()

    def make_selections(self, count: int) -> None:
        """So many selections, to take snapshots of."""
        for number in range(count):
            title = f"Selection {number}"
            items = [f"item {number}.{item}" for item in range(5)]
            made = self.selections.call("POST", "/api/v1/selections", {"title": title, "items": items})
            self._titles[made.body["id"]] = title

    def edit_selections(self) -> None:
        """Every selection changes; what posts show must not."""
        for selection, title in list(self._titles.items()):
            seen = self.selections.call("GET", f"/api/v1/selections/{selection}")
            edited = f"{title}, edited"
            self.selections.call("PUT", f"/api/v1/selections/{selection}", {"title": edited, "items": []}, seen.etag)
            self._titles[selection] = edited

    def make_post(self, number: int) -> None:
        """A published post with none to three embeds."""
        wanted = [{"kind": "Text", "body": f"post {number}"}, *(self._new(number + turn) for turn in range(number % 4))]
        made = self.news.call("POST", "/api/v1/posts", {"title": f"Post {number}", "blocks": wanted})
        post = Written(made.body["id"], made.etag, [])
        self._saw(post, made, wanted)
        post.etag = self.news.call("POST", f"/api/v1/posts/{post.id}/publish").etag
        with self._lock:
            self.ledger.posts.append(post)

    def embed_anew(self, post: Written) -> None:
        """The first embed gives way to a new snapshot; the others stay."""
        first, *rest = post.embeds
        self._set(post, [self._new(UUID(first["snapshotId"]).int), *rest])

    def drop_embed(self, post: Written) -> None:
        """The first embed gives way to text; the others stay."""
        self._set(post, [{"kind": "Text", "body": "no selection here any more"}, *post.embeds[1:]])

    def unpublish(self, post: Written) -> None:
        """Nothing is detached by this (J21)."""
        post.etag = self.news.call("POST", f"/api/v1/posts/{post.id}/unpublish").etag

    def delete(self, post: Written) -> None:
        """All that it shows is to be detached."""
        self.news.call("DELETE", f"/api/v1/posts/{post.id}")
        post.deleted = True
        with self._lock:
            self.ledger.snapshots |= {UUID(block["snapshotId"]): Reason.POST_DELETED for block in post.embeds}

    def _new(self, number: int) -> Block:
        selections = list(self._titles)
        return {"kind": "SelectionEmbed", "selectionId": selections[number % len(selections)]}

    def _set(self, post: Written, wanted: Sequence[Block]) -> None:
        before = {UUID(block["snapshotId"]) for block in post.embeds}
        answer = self.news.call("PUT", f"/api/v1/posts/{post.id}/blocks", {"blocks": wanted}, post.etag)
        self._saw(post, answer, wanted)
        gone = before - {UUID(block["snapshotId"]) for block in post.embeds}
        with self._lock:
            self.ledger.snapshots |= dict.fromkeys(gone, Reason.BLOCK_REPLACED)

    def _saw(self, post: Written, answer: Answered, wanted: Sequence[Block]) -> None:
        """Take in a version as it was answered: ids of its snapshots beside the titles they were asked for with."""
        known = post.shown[-1] if post.shown else {}
        shown: dict[UUID, str] = {}
        for block, asked in zip(answer.body["blocks"], wanted, strict=True):
            if "snapshotId" in block:
                snapshot = UUID(block["snapshotId"])
                shown[snapshot] = self._titles[asked["selectionId"]] if "selectionId" in asked else known[snapshot]
        post.etag, post.blocks = answer.etag, answer.body["blocks"]
        post.shown.append(shown)
        with self._lock:
            self.ledger.snapshots |= dict.fromkeys(shown, None)


def side_by_side(deed: Callable[[T], object], things: Iterable[T], note: Callable[[int], None]) -> None:
    """Do it for each, several at a time; `note` hears how many are done. Raises what the first failure raised."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            for done, _ in enumerate(pool.map(deed, things), start=1):
                note(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
