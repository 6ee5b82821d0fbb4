"""Why news refuses a request. Nothing has changed when one of these is raised, guard intents apart (G13).

    NewsError
    ├── PostNotFound          no such post in the caller's tenant
    │   └── VersionNotFound   the post never had that version
    ├── NotTheAuthor          a reader of the tenant, who may not change it (D13)
    ├── StateConflict         the post's status does not allow it (J21)
    ├── RevisionStale         the post is not at the revision that the caller saw
    ├── SwitchRefused         the job took a guard intent meanwhile (G13)
    └── BlockRefused          one block may not be shown
        ├── SnapshotNotShown  the post's current version does not show that snapshot (G14)
        ├── SnapshotTwice     the request keeps one snapshot in two blocks
        └── SelectionNotFound selections has no such selection in the tenant

That selections cannot be reached is `pin.outgoing.selections.SelectionsUnavailable`.
"""

# Each class is an answer to a caller and is named for what it says, not for being an error.
# ruff: noqa: N818


class NewsError(Exception):
    """A refusal; its text may be shown to the caller."""


class PostNotFound(NewsError):
    """No such post in the caller's tenant."""


class VersionNotFound(PostNotFound):
    """The post never had that version."""


class NotTheAuthor(NewsError):
    """Only the author changes a post (D13)."""


class StateConflict(NewsError):
    """The post's status does not allow what was asked (J21)."""

    def __init__(self, status: str, asked: str) -> None:
        super().__init__(f"cannot {asked}: the post is {status}")
        self.status = status


class RevisionStale(NewsError):
    """The post has changed since the caller saw it. `revision` is its current one."""

    def __init__(self, revision: int) -> None:
        super().__init__("the post has changed since; read it again")
        self.revision = revision


class SwitchRefused(NewsError):
    """The new snapshots were given up before the post could show them (G13); the request may be made again."""


class BlockRefused(NewsError):
    """The block at `position` (from 0) may not be shown; `field` is the member of it at fault."""

    def __init__(self, position: int, field: str, text: str) -> None:
        super().__init__(f"block {position}: {text}")
        self.position = position
        self.field = field


class SnapshotNotShown(BlockRefused):
    """A block may keep only a snapshot that the post's current version shows (G14)."""

    def __init__(self, position: int) -> None:
        super().__init__(position, "snapshotId", "the post's current version does not show this snapshot")


class SnapshotTwice(BlockRefused):
    """A snapshot is shown by one block."""

    def __init__(self, position: int) -> None:
        super().__init__(position, "snapshotId", "an earlier block keeps the same snapshot")


class SelectionNotFound(BlockRefused):
    """Selections has no such selection in the author's tenant."""

    def __init__(self, position: int) -> None:
        super().__init__(position, "selectionId", "there is no such selection")
