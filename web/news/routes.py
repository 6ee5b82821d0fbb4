"""HTTP of the news context: posts, their blocks and versions (G12, J21, J22). Users only; the tenant is the token's."""

import re
from collections.abc import Collection
from functools import partial
from typing import Any
from uuid import UUID

from litestar import Request, Response, Router, delete, get, post, put
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, RawBody, SkipValidation

from pin.access.checking import Caller
from pin.job import delivery
from pin.news.contents import Contents
from pin.news.desk import Author, Desk
from pin.news.errors import NewsError
from pin.news.reading import Rendered, read_post, with_contents
from pin.news.status import delete_post, publish, unpublish
from pin.news.writing import Written, create_post, set_blocks
from pin.outgoing.selections import SelectionsUnavailable
from pin.rules.contract import ErrorCode
from web.auth import InjectedCaller, user_of, users_only
from web.body import decode, uuid_of
from web.bulkheads import Lane, LaneFullError, in_lane, run_in
from web.deps import Deps
from web.etag import expected_revisions, tagged
from web.news.problems import refuse
from web.news.shapes import (
    CreatePost,
    PostView,
    SetBlocks,
    VersionView,
    WrittenPost,
    post_view,
    version_view,
    wanted_of,
    written_post,
)
from web.openapi import describe
from web.problems import invalid

POSTS_PATH = "/api/v1/posts"

_NUMBER = re.compile("[0-9]{1,20}")

_InjectedDesk = NamedDependency[SkipValidation[Desk]]
_Request = Request[Any, Any, Any]

_NOT_FOUND = {404: [ErrorCode.NEWS_POST_NOT_FOUND]}
_CHANGE = _NOT_FOUND | {409: [ErrorCode.NEWS_POST_STATE_CONFLICT], 412: [ErrorCode.PRECONDITION_FAILED]}
_NEW_SNAPSHOTS = {
    400: [ErrorCode.SELECTIONS_SELECTION_NOT_FOUND],
    409: [ErrorCode.NEWS_SNAPSHOT_NOT_SHOWN, ErrorCode.NEWS_SWITCH_REFUSED],
    503: [ErrorCode.NEWS_SELECTIONS_UNAVAILABLE],
}


def news_router(deps: Deps) -> Router:
    """The routes of the context, on these parts. Raises LookupError without a client for selections."""
    desk = desk_of(deps)
    return Router(
        path=POSTS_PATH,
        guards=[users_only],
        dependencies={"desk": Provide(lambda: desk, sync_to_thread=False, use_cache=True)},
        exception_handlers={NewsError: refuse, SelectionsUnavailable: refuse},
        route_handlers=[
            create_post_handler,
            set_blocks_handler,
            publish_handler,
            unpublish_handler,
            delete_post_handler,
            get_post_handler,
            get_version_handler,
        ],
    )


def desk_of(deps: Deps) -> Desk:
    """What the use cases are given. Raises LookupError without a client for selections."""
    if deps.client is None:
        raise LookupError("news needs a client for selections")
    retry, web = deps.settings.retry, deps.settings.web
    first_attempts = partial(
        delivery.first_attempts,
        engine=deps.write_engine,
        client=deps.client,
        policy=delivery.policy_of(retry),
        call_timeout=retry.detach_call_timeout,
        clock=deps.clock,
    )
    return Desk(
        engine=deps.write_engine,
        read_engine=deps.engine,
        client=deps.client,
        first_attempts=lambda entries, deadline: first_attempts(entries, deadline=deadline),
        contents=Contents(),
        clock=deps.clock,
        new_id=deps.new_id,
        create_timeout=web.create_timeout,
        request_timeout=web.request_timeout,
        detach_call_timeout=retry.detach_call_timeout,
    )


@post(
    "/",
    opt=describe(
        "Create a Draft", {201: WrittenPost}, request=CreatePost, caller="user", etag=True, errors=_NEW_SNAPSHOTS
    ),
)
@in_lane(Lane.WRITES)
def create_post_handler(
    request: _Request, body: RawBody, desk: _InjectedDesk, caller: InjectedCaller
) -> Response[WrittenPost]:
    """create-post; Location names it. Its blocks may embed selections of the tenant, and no snapshot yet (G14)."""
    asked = decode(request, body, CreatePost)
    written = create_post(desk, _author(caller), asked.title, wanted_of(asked.blocks))
    return _written(written, status=201, location=f"{POSTS_PATH}/{written.post.id}")


@put(
    "/{post_id:str}/blocks",
    opt=describe(
        "Set the blocks of a post",
        {200: WrittenPost},
        request=SetBlocks,
        caller="user",
        etag=True,
        if_match=True,
        errors=_NEW_SNAPSHOTS | _NOT_FOUND | {409: [ErrorCode.NEWS_POST_STATE_CONFLICT, *_NEW_SNAPSHOTS[409]]},
    ),
)
@in_lane(Lane.WRITES)
def set_blocks_handler(
    request: _Request, post_id: FromPath[str], body: RawBody, desk: _InjectedDesk, caller: InjectedCaller
) -> Response[WrittenPost]:
    """set-blocks: all the blocks of a new version. If-Match is required, so that no one else's change is lost."""
    found = uuid_of(post_id, "postId")
    expected = expected_revisions(request)
    asked = decode(request, body, SetBlocks)
    return _written(set_blocks(desk, _author(caller), found, wanted_of(asked.blocks), expected))


@post(
    "/{post_id:str}/publish",
    opt=describe("Publish a post", {200: WrittenPost}, caller="user", etag=True, errors=_CHANGE),
    status_code=200,
)
@in_lane(Lane.WRITES)
def publish_handler(
    request: _Request, post_id: FromPath[str], desk: _InjectedDesk, caller: InjectedCaller
) -> Response[WrittenPost]:
    """publish-post: of a Draft or an Unpublished one. If-Match is honoured where it is sent."""
    return _written(publish(desk, _author(caller), uuid_of(post_id, "postId"), _if_sent(request)))


@post(
    "/{post_id:str}/unpublish",
    opt=describe("Unpublish a post", {200: WrittenPost}, caller="user", etag=True, errors=_CHANGE),
    status_code=200,
)
@in_lane(Lane.WRITES)
def unpublish_handler(
    request: _Request, post_id: FromPath[str], desk: _InjectedDesk, caller: InjectedCaller
) -> Response[WrittenPost]:
    """unpublish-post: of a Published one; detaches nothing (J21). If-Match is honoured where it is sent."""
    return _written(unpublish(desk, _author(caller), uuid_of(post_id, "postId"), _if_sent(request)))


@delete(
    "/{post_id:str}",
    opt=describe("Archive a post", {204: None}, caller="user", errors=_CHANGE),
)
@in_lane(Lane.WRITES)
def delete_post_handler(request: _Request, post_id: FromPath[str], desk: _InjectedDesk, caller: InjectedCaller) -> None:
    """delete-post: soft, and answered alike however often (J21). If-Match is honoured where it is sent."""
    delete_post(desk, _author(caller), uuid_of(post_id, "postId"), _if_sent(request))


@get(
    "/{post_id:str}",
    opt=describe("Read a post", {200: PostView}, caller="user", etag=True, errors=_NOT_FOUND),
)
async def get_post_handler(post_id: FromPath[str], desk: _InjectedDesk, caller: InjectedCaller) -> Response[PostView]:
    """get-post: the current version as any user of the tenant sees it, in any status (J22, J32)."""
    rendered = await _read(desk, caller, uuid_of(post_id, "postId"))
    return tagged(post_view(rendered), rendered.post.revision)


@get(
    "/{post_id:str}/versions/{version:str}",
    opt=describe(
        "Read a version of a post",
        {200: VersionView},
        caller="user",
        errors={404: [ErrorCode.NEWS_POST_NOT_FOUND, ErrorCode.NOT_FOUND]},
    ),
)
async def get_version_handler(
    post_id: FromPath[str], version: FromPath[str], desk: _InjectedDesk, caller: InjectedCaller
) -> VersionView:
    """get-post-version: what the post showed then, detached or not, Archived or not (J22)."""
    found = uuid_of(post_id, "postId")
    if not _NUMBER.fullmatch(version):
        raise invalid("Must be the number of a version.", field="version")
    return version_view(await _read(desk, caller, found, int(version)))


async def _read(desk: Desk, caller: Caller, post_id: UUID, version: int | None = None) -> Rendered:
    """Read in one lane, wait for selections in another: who needs no contents never waits behind those who do (A63)."""
    rendered = await run_in(Lane.READS, partial(read_post, desk, _author(caller).tenant_id, post_id, version))
    if not rendered.missing:
        return rendered
    try:
        return await run_in(Lane.CONTENTS, partial(with_contents, desk, rendered))
    except LaneFullError:
        return rendered


def _author(caller: Caller) -> Author:
    return Author(*user_of(caller))


def _if_sent(request: _Request) -> Collection[int] | None:
    return expected_revisions(request) if "if-match" in request.headers else None


def _written(written: Written, *, status: int = 200, location: str | None = None) -> Response[WrittenPost]:
    return tagged(written_post(written), written.post.revision, status=status, location=location)
