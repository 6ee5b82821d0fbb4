"""The news API on the wire: camelCase, unknown fields refused on writes (G12)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, TypedDict
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from db.news import Block, Post
from pin.news.blocks import KeptEmbed, NewEmbed, Text, Wanted
from pin.news.reading import Rendered
from pin.news.writing import Written
from pin.rules.contract import Answer, SnapshotContent, Wire

MAX_BLOCKS = 200
MAX_BODY = 20_000

Title = Annotated[str, Meta(min_length=1, max_length=200, description="Not blank.")]
Body = Annotated[str, Meta(max_length=MAX_BODY)]


class TextBlock(Wire, frozen=True, tag_field="kind", tag="Text"):
    """A block of text."""

    body: Body

    def wanted(self) -> Wanted:
        """The block as the use cases take it."""
        return Text(self.body)


class EmbedBlock(Wire, frozen=True, tag_field="kind", tag="SelectionEmbed"):
    """Exactly one of: a selection to take a snapshot of, or a snapshot that the current version shows."""

    selection_id: UUID | UnsetType = UNSET
    snapshot_id: UUID | UnsetType = UNSET

    def __post_init__(self) -> None:
        if isinstance(self.selection_id, UnsetType) == isinstance(self.snapshot_id, UnsetType):
            raise ValueError("give either selectionId or snapshotId")

    def wanted(self) -> Wanted:
        """The block as the use cases take it."""
        if isinstance(self.selection_id, UUID):
            return NewEmbed(self.selection_id)
        assert isinstance(self.snapshot_id, UUID)  # noqa: S101 - __post_init__ saw to it
        return KeptEmbed(self.snapshot_id)


Blocks = Annotated[list[TextBlock | EmbedBlock], Meta(max_length=MAX_BLOCKS)]


class CreatePost(Wire, frozen=True):
    """Body of create-post."""

    title: Title
    blocks: Blocks = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.title.strip():
            raise ValueError("title must not be blank")


class SetBlocks(Wire, frozen=True):
    """Body of set-blocks: all the blocks, in order."""

    blocks: Blocks


class TextView(Answer, frozen=True, tag_field="kind", tag="Text"):
    """A block of text."""

    body: str


class EmbedReference(Answer, frozen=True, tag_field="kind", tag="SelectionEmbed"):
    """A block that shows a snapshot; a later set-blocks names it to keep it."""

    snapshot_id: UUID


class EmbedView(Answer, frozen=True, tag_field="kind", tag="SelectionEmbed"):
    """A block with what its snapshot shows. `content` is null while selections cannot be reached (J32)."""

    snapshot_id: UUID
    content: SnapshotContent | None
    content_unavailable: bool


class _PostHead(Answer, frozen=True):
    """A post without its blocks. `version` names its content, `revision` is its ETag."""

    id: UUID
    title: str
    status: str
    author_id: UUID
    version: int
    revision: int
    created_at: datetime
    updated_at: datetime


class WrittenPost(_PostHead, frozen=True):
    """A post after a change."""

    blocks: list[TextView | EmbedReference]


class PostView(_PostHead, frozen=True):
    """A post as it is now, rendered."""

    blocks: list[TextView | EmbedView]


class VersionView(Answer, frozen=True):
    """A version of a post as it was, rendered (J22). `status` is the post's own, of now."""

    id: UUID
    title: str
    status: str
    version: int
    created_by: UUID
    created_at: datetime
    blocks: list[TextView | EmbedView]


def wanted_of(blocks: Sequence[TextBlock | EmbedBlock]) -> list[Wanted]:
    """The blocks as the use cases take them."""
    return [block.wanted() for block in blocks]


def written_post(written: Written) -> WrittenPost:
    """The answer to a change."""
    return WrittenPost(**_head(written.post), blocks=[_reference(block) for block in written.blocks])


def post_view(rendered: Rendered) -> PostView:
    """The answer to get-post."""
    return PostView(**_head(rendered.post), blocks=_views(rendered))


def version_view(rendered: Rendered) -> VersionView:
    """The answer to get-post-version."""
    return VersionView(
        id=rendered.post.id,
        title=rendered.post.title,
        status=rendered.post.status,
        version=rendered.version.version,
        created_by=rendered.version.created_by,
        created_at=rendered.version.created_at,
        blocks=_views(rendered),
    )


class _Head(TypedDict):
    id: UUID
    title: str
    status: str
    author_id: UUID
    version: int
    revision: int
    created_at: datetime
    updated_at: datetime


def _head(post: Post) -> _Head:
    return {
        "id": post.id,
        "title": post.title,
        "status": post.status,
        "author_id": post.author_id,
        "version": post.version,
        "revision": post.revision,
        "created_at": post.created_at,
        "updated_at": post.updated_at,
    }


def _reference(block: Block) -> TextView | EmbedReference:
    if block.snapshot_id is not None:
        return EmbedReference(snapshot_id=block.snapshot_id)
    return TextView(body=block.body or "")


def _views(rendered: Rendered) -> list[TextView | EmbedView]:
    return [_view(block, rendered.contents) for block in rendered.blocks]


def _view(block: Block, contents: Mapping[UUID, SnapshotContent]) -> TextView | EmbedView:
    if block.snapshot_id is None:
        return TextView(body=block.body or "")
    content = contents.get(block.snapshot_id)
    return EmbedView(snapshot_id=block.snapshot_id, content=content, content_unavailable=content is None)
