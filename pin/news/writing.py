"""Create a post and set its blocks: create, switch, detach (J21, G13, G14)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import Connection

from db.errors import transact
from db.news import Block, Post, PostStatus, blocks_of, change_post, find_post, insert_post, insert_version, lock_post
from pin.news.blocks import Wanted, check_kept, create_guarded, lift_guards
from pin.news.desk import Author, Desk
from pin.news.detaching import Staged, first_attempts, stage_detach
from pin.news.errors import NotTheAuthor, PostNotFound, RevisionStale, StateConflict
from pin.rules.contract import Reason


@dataclass(frozen=True, slots=True)
class Written:
    """A post as a request left it, with the blocks of its current version."""

    post: Post
    blocks: tuple[Block, ...]


_CHANGEABLE = {PostStatus.DRAFT, PostStatus.PUBLISHED, PostStatus.UNPUBLISHED}


def create_post(desk: Desk, author: Author, title: str, wanted: Sequence[Wanted]) -> Written:
    """A Draft of the author's, its snapshots taken under guards as in `set_blocks` (G12, G13).

    Raises BlockRefused, SwitchRefused, SelectionsUnavailable; there is no post then.
    """
    check_kept(wanted, shown=())
    post_id = desk.new_id()
    guarded = create_guarded(desk, author, post_id, wanted)
    now = desk.clock()
    post = Post(
        id=post_id,
        tenant_id=author.tenant_id,
        author_id=author.user_id,
        title=title,
        status=PostStatus.DRAFT,
        version=1,
        revision=1,
        created_at=now,
        updated_at=now,
    )

    def insert(connection: Connection) -> None:
        insert_post(connection, post)
        insert_version(connection, post, author.user_id, guarded.blocks)
        lift_guards(connection, guarded)

    transact(desk.engine, insert)
    return Written(post, guarded.blocks)


def set_blocks(
    desk: Desk, author: Author, post_id: UUID, wanted: Sequence[Wanted], expected: Collection[int] | None
) -> Written:
    """A new version of the post that shows `wanted`; what it no longer shows is to be detached (J18, J19, J21).

    `expected` holds the revisions that the caller would overwrite, None any. Whoever may not, or wants what cannot be,
    is refused before anything is written or called (D13); all of it is checked again under the post's lock, for
    selections was called in between (G14, G15). Raises PostNotFound, NotTheAuthor, StateConflict, RevisionStale,
    BlockRefused, SwitchRefused, SelectionsUnavailable; the post is as it was then.
    """
    with desk.engine.connect() as connection:
        post = _changeable(find_post(connection, post_id, author.tenant_id), author, expected)
        check_kept(wanted, blocks_of(connection, post.id, post.version))
    guarded = create_guarded(desk, author, post_id, wanted)

    def switch(connection: Connection) -> tuple[Post, Staged]:
        seen = _changeable(lock_post(connection, post_id, author.tenant_id), author, expected)
        shown = blocks_of(connection, seen.id, seen.version)
        check_kept(wanted, shown)
        lift_guards(connection, guarded)
        changed = replace(seen, version=seen.version + 1, revision=seen.revision + 1, updated_at=desk.clock())
        change_post(connection, changed)
        insert_version(connection, changed, author.user_id, guarded.blocks)
        gone = snapshots_of(shown, but_not=guarded.blocks)
        return changed, stage_detach(desk, connection, changed, gone, Reason.BLOCK_REPLACED, author.user_id)

    post, staged = transact(desk.engine, switch)
    first_attempts(desk, post, staged)
    return Written(post, guarded.blocks)


def snapshots_of(shown: Sequence[Block], but_not: Sequence[Block] = ()) -> list[UUID]:
    """The snapshots of `shown`, in order, without those of `but_not`."""
    kept = {block.snapshot_id for block in but_not}
    return [block.snapshot_id for block in shown if block.snapshot_id and block.snapshot_id not in kept]


def owned(post: Post | None, author: Author) -> Post:
    """The post, if the author may change it. Raises PostNotFound or NotTheAuthor (D13)."""
    if post is None:
        raise PostNotFound("there is no such post")
    if post.author_id != author.user_id:
        raise NotTheAuthor("only its author changes a post")
    return post


def check_revision(post: Post, expected: Collection[int] | None) -> None:
    """Raise RevisionStale unless the post is at one of the expected revisions; None expects any."""
    if expected is not None and post.revision not in expected:
        raise RevisionStale(post.revision)


def _changeable(found: Post | None, author: Author, expected: Collection[int] | None) -> Post:
    post = owned(found, author)
    if post.status not in _CHANGEABLE:  # Archived, or what a newer release calls it (G26)
        raise StateConflict(post.status, "set blocks")
    check_revision(post, expected)
    return post
