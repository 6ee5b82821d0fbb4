"""Read a post, now or as it was, with what its snapshots showed (J22, J32)."""

from dataclasses import dataclass
from uuid import UUID

from db.news import Block, Post, Version, blocks_of, find_post, find_version
from pin.news.desk import Desk
from pin.news.errors import PostNotFound, VersionNotFound
from pin.rules.contract import SnapshotContent


@dataclass(frozen=True, slots=True)
class Rendered:
    """A version of a post. `contents` lacks the snapshots that selections did not give in time."""

    post: Post
    version: Version
    blocks: tuple[Block, ...]
    contents: dict[UUID, SnapshotContent]


def read_post(desk: Desk, tenant_id: UUID, post_id: UUID, version: int | None = None) -> Rendered:
    """A version of a post, the current one unless named; in any status, its snapshots attached or not (J22).

    With selections away the contents are missing and the rest is there (J32). No connection is held while selections is
    asked. Raises PostNotFound, VersionNotFound.
    """
    with desk.engine.connect() as connection:
        post = find_post(connection, post_id, tenant_id)
        if post is None:
            raise PostNotFound("there is no such post")
        named = post.version if version is None else version
        found = find_version(connection, post.id, named)
        if found is None:
            raise VersionNotFound(f"the post has no version {named}")
        blocks = tuple(blocks_of(connection, post.id, found.version))
    contents = desk.contents.of((block.snapshot_id for block in blocks if block.snapshot_id), desk.client)
    return Rendered(post, found, blocks, contents)
