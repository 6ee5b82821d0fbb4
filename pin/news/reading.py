"""Read a post, now or as it was, with what its snapshots showed (J22, J32)."""

from dataclasses import dataclass, replace
from uuid import UUID

from db.news import Block, Post, Version, blocks_of, find_post, find_version
from pin.news.desk import Desk
from pin.news.errors import PostNotFound, VersionNotFound
from pin.rules.contract import SnapshotContent


@dataclass(frozen=True, slots=True)
class Rendered:
    """A version of a post. `contents` lacks what selections was not asked for or did not give in time."""

    post: Post
    version: Version
    blocks: tuple[Block, ...]
    contents: dict[UUID, SnapshotContent]

    @property
    def missing(self) -> frozenset[UUID]:
        """The snapshots whose contents are not here."""
        return frozenset(block.snapshot_id for block in self.blocks if block.snapshot_id) - self.contents.keys()


def read_post(desk: Desk, tenant_id: UUID, post_id: UUID, version: int | None = None) -> Rendered:
    """A version of a post, the current one unless named; in any status, its snapshots attached or not (J22).

    The contents are those that this process has; `with_contents` asks for the others. Raises PostNotFound,
    VersionNotFound.
    """
    with desk.read_engine.connect() as connection:
        post = find_post(connection, post_id, tenant_id)
        if post is None:
            raise PostNotFound("there is no such post")
        named = post.version if version is None else version
        found = find_version(connection, post.id, named)
        if found is None:
            raise VersionNotFound(f"the post has no version {named}")
        blocks = tuple(blocks_of(connection, post.id, found.version))
    contents = desk.contents.recall(block.snapshot_id for block in blocks if block.snapshot_id)
    return Rendered(post, found, blocks, contents)


def with_contents(desk: Desk, rendered: Rendered) -> Rendered:
    """The same with the contents that selections gives in time; with selections away they stay missing (J32).

    Waits for selections at most `pin.news.contents.CONTENT_TIMEOUT`, and holds no connection meanwhile.
    """
    return replace(rendered, contents=rendered.contents | desk.contents.of(rendered.missing, desk.client))
