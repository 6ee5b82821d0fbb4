"""Publish, unpublish, delete: a post's way through its statuses (J21)."""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from sqlalchemy import Connection

from db.errors import transact
from db.news import Post, PostStatus, blocks_of, change_post, lock_post
from pin.news.desk import Author, Desk
from pin.news.detaching import Staged, first_attempts, stage_detach
from pin.news.errors import StateConflict
from pin.news.writing import Written, check_revision, owned, snapshots_of
from pin.rules.contract import Reason


def publish(desk: Desk, author: Author, post_id: UUID, expected: Collection[int] | None) -> Written:
    """Draft or Unpublished -> Published. Raises PostNotFound, NotTheAuthor, StateConflict, RevisionStale."""
    allowed = {PostStatus.DRAFT, PostStatus.UNPUBLISHED}
    return _move(desk, author, post_id, expected, allowed, PostStatus.PUBLISHED, "publish")


def unpublish(desk: Desk, author: Author, post_id: UUID, expected: Collection[int] | None) -> Written:
    """Published -> Unpublished; its snapshots stay Active (J21). Raises as `publish`."""
    return _move(desk, author, post_id, expected, {PostStatus.PUBLISHED}, PostStatus.UNPUBLISHED, "unpublish")


def delete_post(desk: Desk, author: Author, post_id: UUID, expected: Collection[int] | None) -> None:
    """Published or Unpublished -> Archived; all that the current version shows is to be detached (J18, J19, J21).

    An Archived post is left as it is, whatever revision was expected, so that a repeat whose first answer was lost is
    answered as the first (RFC 9110, 13.1.1). A Draft is refused. Raises PostNotFound, NotTheAuthor, StateConflict,
    RevisionStale.
    """

    def archive(connection: Connection) -> tuple[Post, Staged] | None:
        post = owned(lock_post(connection, post_id, author.tenant_id), author)
        if post.status is PostStatus.ARCHIVED:
            return None
        check_revision(post, expected)
        if post.status not in {PostStatus.PUBLISHED, PostStatus.UNPUBLISHED}:
            raise StateConflict(post.status, "delete")
        post = _with_status(desk, connection, post, PostStatus.ARCHIVED)
        shown = snapshots_of(blocks_of(connection, post.id, post.version))
        return post, stage_detach(desk, connection, post, shown, Reason.POST_DELETED, author.user_id)

    archived = transact(desk.engine, archive)
    if archived is not None:
        first_attempts(desk, *archived)


def _move(
    desk: Desk,
    author: Author,
    post_id: UUID,
    expected: Collection[int] | None,
    allowed: Collection[PostStatus],
    status: PostStatus,
    asked: str,
) -> Written:
    def move(connection: Connection) -> Written:
        post = owned(lock_post(connection, post_id, author.tenant_id), author)
        check_revision(post, expected)
        if post.status not in allowed:
            raise StateConflict(post.status, asked)
        post = _with_status(desk, connection, post, status)
        return Written(post, tuple(blocks_of(connection, post.id, post.version)))

    return transact(desk.engine, move)


def _with_status(desk: Desk, connection: Connection, post: Post, status: PostStatus) -> Post:
    changed = replace(post, status=status, revision=post.revision + 1, updated_at=desk.clock())
    change_post(connection, changed)
    return changed
