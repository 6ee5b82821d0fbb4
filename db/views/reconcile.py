"""What news shows and intends, by snapshot: for comparing with selections, and for mending by an ordinary intent."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

_NONE = UUID(int=0)
_LAST = UUID(int=(1 << 128) - 1)


@dataclass(frozen=True, slots=True)
class Shown:
    """A snapshot that a live post's current version shows."""

    snapshot_id: UUID
    post_id: UUID


@dataclass(frozen=True, slots=True)
class Known:
    """What news knows of a snapshot: the state of its active intent, and a post it belongs or belonged to."""

    snapshot_id: UUID
    active: str | None
    post_id: UUID | None


@dataclass(frozen=True, slots=True)
class PostOwner:
    """The post that a snapshot belonged to: in whose name the detach is asked for."""

    author_id: UUID
    status: str


_LIVE = """
    FROM news.post_block b JOIN news.post p ON p.id = b.post_id AND p.version = b.version
    WHERE p.status <> 'Archived' AND b.snapshot_id IS NOT NULL
"""

_SHOWN = text(f"""
    SELECT b.snapshot_id, b.post_id {_LIVE}
    AND b.snapshot_id > CAST(:after AS uuid) AND b.snapshot_id <= CAST(:upto AS uuid)
    ORDER BY b.snapshot_id LIMIT :limit
""")

_KNOWN = text("""
    SELECT s.id AS snapshot_id,
        (SELECT status FROM news.snapshot_detach_outbox o WHERE o.snapshot_id = s.id AND o.status <> 'Done') AS active,
        coalesce(
            (SELECT post_id FROM news.post_block b WHERE b.snapshot_id = s.id ORDER BY version DESC LIMIT 1),
            (SELECT post_id FROM news.snapshot_detach_outbox o WHERE o.snapshot_id = s.id AND o.status <> 'Done'),
            (SELECT post_id FROM news.snapshot_detach_outbox o
             WHERE o.snapshot_id = s.id AND o.status = 'Done' LIMIT 1)
        ) AS post_id
    FROM unnest(CAST(:ids AS uuid[])) AS s (id)
    ORDER BY s.id
""")

_STILL_SHOWN = text(f"SELECT EXISTS (SELECT {_LIVE} AND b.snapshot_id = :id)")

_LOCK_POST = text("SELECT author_id, status FROM news.post WHERE id = :id FOR UPDATE")

_BLOCKS = text("""
    SELECT b.snapshot_id, b.version, b.version = p.version AS is_current
    FROM news.post_block b JOIN news.post p ON p.id = b.post_id
    WHERE b.post_id = :id AND b.snapshot_id IS NOT NULL ORDER BY b.version, b.position
""")

_POST = text("SELECT status, version, title, author_id, updated_at FROM news.post WHERE id = :id")

_SHOWING = text("""
    SELECT b.post_id, p.status, b.version = p.version AS is_current, max(b.version) AS version
    FROM news.post_block b JOIN news.post p ON p.id = b.post_id
    WHERE b.snapshot_id = :id GROUP BY 1, 2, 3 ORDER BY 1, 3 DESC
""")


def shown(connection: Connection, *, after: UUID | None, upto: UUID | None, limit: int) -> list[Shown]:
    """The snapshots that live posts show, by id, above `after` and up to `upto` (None: without that bound)."""
    values = {"after": after or _NONE, "upto": upto or _LAST, "limit": limit}
    return [Shown(*row) for row in connection.execute(_SHOWN, values)]


def known(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Known]:
    """What news knows of these snapshots, whether any post shows them or not."""
    return {row.snapshot_id: Known(*row) for row in connection.execute(_KNOWN, {"ids": list(ids)})}


def is_shown(connection: Connection, snapshot_id: UUID) -> bool:
    """Whether a live post's current version shows it."""
    return bool(connection.execute(_STILL_SHOWN, {"id": snapshot_id}).scalar_one())


def lock_owner(connection: Connection, post_id: UUID) -> PostOwner | None:
    """The post's row, locked against set-blocks and delete-post until the transaction ends (G15)."""
    row = connection.execute(_LOCK_POST, {"id": post_id}).one_or_none()
    return PostOwner(*row) if row else None


@dataclass(frozen=True, slots=True)
class PostSnapshot:
    """A snapshot in a version of a post."""

    snapshot_id: UUID
    version: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class PostFacts:
    """A post for operators, whatever its tenant; nothing of what it says but its title."""

    status: str
    version: int
    title: str


@dataclass(frozen=True, slots=True)
class Showing:
    """A post that shows a snapshot, or did: `version` is the newest that does."""

    post_id: UUID
    status: str
    is_current: bool
    version: int


def post_facts(connection: Connection, post_id: UUID) -> PostFacts | None:
    """The post, None where there is no such one."""
    row = connection.execute(_POST, {"id": post_id}).one_or_none()
    return PostFacts(row.status, row.version, row.title) if row else None


def post_snapshots(connection: Connection, post_id: UUID) -> list[PostSnapshot]:
    """Every snapshot of every version of the post, oldest version first."""
    return [PostSnapshot(*row) for row in connection.execute(_BLOCKS, {"id": post_id})]


def showing(connection: Connection, snapshot_id: UUID) -> list[Showing]:
    """The posts that show the snapshot or did."""
    return [Showing(*row) for row in connection.execute(_SHOWING, {"id": snapshot_id})]
