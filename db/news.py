"""`news.post`, its versions and their blocks (G12, J21, J22). A version, once written, never changes.

A post's row is the turnstile of everything that changes it: set-blocks, publish, unpublish and delete-post lock it
first (G14, G15). A post is found by its id and its tenant together, so that another tenant's does not exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text
from sqlalchemy.engine import Row

from pin.rules.reading import known

_MAX_VERSION = 2**31 - 1


class PostStatus(StrEnum):
    """A post's life (J21): Draft -> Published <-> Unpublished -> Archived; Published -> Archived. Stored as text."""

    DRAFT = "Draft"
    PUBLISHED = "Published"
    UNPUBLISHED = "Unpublished"
    ARCHIVED = "Archived"


@dataclass(frozen=True, slots=True)
class Post:
    """A post's row. `version` names the content it shows now; `revision` counts every change (its ETag)."""

    id: UUID
    tenant_id: UUID
    author_id: UUID
    title: str
    status: PostStatus | str
    version: int
    revision: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a version: text (`body`) or an embedded snapshot (`snapshot_id`), never both."""

    body: str | None = None
    snapshot_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """Who wrote a version of a post, and when."""

    version: int
    created_by: UUID
    created_at: datetime


_FIND = """
    SELECT id, tenant_id, author_id, title, status, version, revision, created_at, updated_at
    FROM news.post WHERE id = :id AND tenant_id = :tenant_id
"""
_FIND_POST = text(_FIND)
_LOCK_POST = text(_FIND + " FOR UPDATE")

_INSERT_POST = text("""
    INSERT INTO news.post (id, tenant_id, author_id, title, status, version, revision, created_at, updated_at)
    VALUES (:id, :tenant_id, :author_id, :title, :status, :version, :revision, :created_at, :updated_at)
""")

_CHANGE_POST = text("""
    UPDATE news.post
    SET status = :status, version = :version, revision = :revision, updated_at = :updated_at
    WHERE id = :id AND revision = :revision - 1
""")

_INSERT_VERSION = text("""
    INSERT INTO news.post_version (post_id, version, created_by, created_at)
    VALUES (:post_id, :version, :created_by, :created_at)
""")

_INSERT_BLOCKS = text("""
    INSERT INTO news.post_block (post_id, version, position, kind, body, snapshot_id)
    SELECT :post_id, :version, position - 1,
           CASE WHEN snapshot_id IS NULL THEN 'Text' ELSE 'SelectionEmbed' END, body, snapshot_id
    FROM unnest(CAST(:bodies AS text[]), CAST(:snapshot_ids AS uuid[]))
         WITH ORDINALITY AS block (body, snapshot_id, position)
""")

_FIND_VERSION = text("""
    SELECT version, created_by, created_at FROM news.post_version WHERE post_id = :post_id AND version = :version
""")

_BLOCKS = text("""
    SELECT body, snapshot_id FROM news.post_block WHERE post_id = :post_id AND version = :version ORDER BY position
""")


def find_post(connection: Connection, post_id: UUID, tenant_id: UUID) -> Post | None:
    """The tenant's post, None where it has no such one."""
    row = connection.execute(_FIND_POST, {"id": post_id, "tenant_id": tenant_id}).one_or_none()
    return _post_of(row) if row else None


def lock_post(connection: Connection, post_id: UUID, tenant_id: UUID) -> Post | None:
    """The tenant's post as it is once every earlier change has committed; none other comes between (G14, G15).

    Held until the transaction ends; the wait for it is bounded by the session's statement timeout.
    """
    row = connection.execute(_LOCK_POST, {"id": post_id, "tenant_id": tenant_id}).one_or_none()
    return _post_of(row) if row else None


def insert_post(connection: Connection, post: Post) -> None:
    """A new post; its first version is `insert_version`'s, in the same transaction."""
    connection.execute(_INSERT_POST, _parameters(post))


def change_post(connection: Connection, post: Post) -> None:
    """Write status, version and `updated_at` of `post`, which carries the revision after the one that was locked.

    Raises RuntimeError, so that the transaction rolls back, when the row has another revision: it was not locked.
    """
    if connection.execute(_CHANGE_POST, _parameters(post)).rowcount != 1:
        raise RuntimeError(f"post {post.id} is not at revision {post.revision - 1}: it was changed without its lock")


def insert_version(connection: Connection, post: Post, created_by: UUID, blocks: Sequence[Block]) -> None:
    """The version that `post` names, with its blocks in their order; two statements whatever their number."""
    named = {"post_id": post.id, "version": post.version}
    connection.execute(_INSERT_VERSION, named | {"created_by": created_by, "created_at": post.updated_at})
    if blocks:
        columns = {
            "bodies": [block.body for block in blocks],
            "snapshot_ids": [block.snapshot_id for block in blocks],
        }
        connection.execute(_INSERT_BLOCKS, named | columns)


def find_version(connection: Connection, post_id: UUID, version: int) -> Version | None:
    """That version of the post, None where it never was; `version` may be any integer."""
    if not 0 < version <= _MAX_VERSION:
        return None
    row = connection.execute(_FIND_VERSION, {"post_id": post_id, "version": version}).one_or_none()
    return Version(row.version, row.created_by, row.created_at) if row else None


def blocks_of(connection: Connection, post_id: UUID, version: int) -> list[Block]:
    """The blocks of that version, in their order."""
    rows = connection.execute(_BLOCKS, {"post_id": post_id, "version": version})
    return [Block(row.body, row.snapshot_id) for row in rows]


def _post_of(row: Row[Any]) -> Post:
    return Post(
        id=row.id,
        tenant_id=row.tenant_id,
        author_id=row.author_id,
        title=row.title,
        status=known(PostStatus, row.status),
        version=row.version,
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _parameters(post: Post) -> dict[str, Any]:
    return {
        "id": post.id,
        "tenant_id": post.tenant_id,
        "author_id": post.author_id,
        "title": post.title,
        "status": str(post.status),
        "version": post.version,
        "revision": post.revision,
        "created_at": post.created_at,
        "updated_at": post.updated_at,
    }
