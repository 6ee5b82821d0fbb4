"""HTTP of the selections context: users' selections, and the internal API of their snapshots (D1–D14, G10, G12)."""

import re
from typing import Any

from litestar import Request, Response, Router, get, post, put
from litestar.params import FromPath, RawBody

from pin.rules.contract import (
    DETACH_PATH,
    MESSAGE_SNAPSHOT_NOT_FOUND,
    SNAPSHOT_PATH,
    SNAPSHOTS_MOST,
    SNAPSHOTS_PATH,
    CreateSnapshotRequest,
    DetachRequest,
    DetachSelectionSnapshotResult,
    ErrorCode,
    Snapshot,
    SnapshotPage,
)
from pin.selections import snapshots
from web.auth import InjectedCaller, forbidden, internal_news_only, user_of, users_only
from web.body import decode, uuid_of
from web.bulkheads import Lane, in_lane
from web.deps import Deps, InjectedDeps
from web.etag import expected_revisions, tagged
from web.openapi import describe
from web.problems import ProblemError, invalid, of_status
from web.selections.shapes import (
    SelectionAnswer,
    SelectionRequest,
    detach_answer,
    selection_answer,
    snapshot_answer,
)

SELECTIONS_PATH = "/api/v1/selections"
SELECTION_PATH = SELECTIONS_PATH + "/{selection_id}"

_SNAPSHOT_NOT_FOUND = {404: [ErrorCode.SELECTIONS_SNAPSHOT_NOT_FOUND]}
_SELECTION_NOT_FOUND = {404: [ErrorCode.SELECTIONS_SELECTION_NOT_FOUND]}

AnyRequest = Request[Any, Any, Any]


def selections_router(_: Deps) -> Router:
    """The routes of the context."""
    return Router(
        path="/",
        route_handlers=[
            create_selection,
            get_selection,
            edit_selection,
            create_snapshot,
            list_snapshots,
            get_snapshot,
            detach_snapshot,
        ],
    )


@post(
    SELECTIONS_PATH,
    guards=[users_only],
    opt=describe("Create a selection", {201: SelectionAnswer}, request=SelectionRequest, caller="user", etag=True),
)
@in_lane(Lane.CHANGES)
def create_selection(
    request: AnyRequest, body: RawBody, deps: InjectedDeps, caller: InjectedCaller
) -> Response[SelectionAnswer]:
    """A new selection, owned by the caller."""
    wanted = decode(request, body, SelectionRequest)
    user_id, tenant_id = user_of(caller)
    made = snapshots.create_selection(
        deps.write_engine,
        selection_id=deps.new_id(),
        tenant_id=tenant_id,
        owner_id=user_id,
        title=wanted.title,
        items=wanted.items,
        now=deps.clock(),
    )
    return tagged(selection_answer(made), made.revision, location=f"{SELECTIONS_PATH}/{made.id}")


@get(
    SELECTION_PATH.replace("}", ":str}"),
    guards=[users_only],
    opt=describe(
        "Get a selection of one's tenant", {200: SelectionAnswer}, caller="user", etag=True, errors=_SELECTION_NOT_FOUND
    ),
)
@in_lane(Lane.READS)
def get_selection(selection_id: FromPath[str], deps: InjectedDeps, caller: InjectedCaller) -> Response[SelectionAnswer]:
    """The selection with its ETag; another tenant's is answered as if it did not exist."""
    _, tenant_id = user_of(caller)
    try:
        found = snapshots.get_selection(deps.engine, uuid_of(selection_id, "selectionId"), tenant_id)
    except snapshots.SelectionNotFoundError:
        raise _selection_not_found() from None
    return tagged(selection_answer(found), found.revision)


@put(
    SELECTION_PATH.replace("}", ":str}"),
    guards=[users_only],
    opt=describe(
        "Edit one's selection; snapshots of it stay as they are",
        {200: SelectionAnswer},
        request=SelectionRequest,
        caller="user",
        etag=True,
        if_match=True,
        errors=_SELECTION_NOT_FOUND,
    ),
)
@in_lane(Lane.CHANGES)
def edit_selection(
    request: AnyRequest, selection_id: FromPath[str], body: RawBody, deps: InjectedDeps, caller: InjectedCaller
) -> Response[SelectionAnswer]:
    """Replace title and items, by the owner alone, at the revision that If-Match names."""
    id_ = uuid_of(selection_id, "selectionId")
    expected = expected_revisions(request)
    wanted = decode(request, body, SelectionRequest)
    user_id, tenant_id = user_of(caller)
    try:
        edited = snapshots.edit_selection(
            deps.write_engine,
            id_,
            tenant_id=tenant_id,
            user_id=user_id,
            expected=lambda revision: expected is None or revision in expected,
            title=wanted.title,
            items=wanted.items,
            now=deps.clock(),
        )
    except snapshots.SelectionNotFoundError:
        raise _selection_not_found() from None
    except snapshots.NotOwnerError:
        raise forbidden("Only its owner may change a selection.") from None
    except snapshots.StaleRevisionError:
        raise of_status(412, "The selection has changed since: read it again.") from None
    return tagged(selection_answer(edited), edited.revision)


@post(
    SNAPSHOTS_PATH,
    guards=[internal_news_only],
    opt=describe(
        "Take a snapshot of a selection under an id that the caller chose; a repeat is answered 200",
        {200: Snapshot, 201: Snapshot},
        request=CreateSnapshotRequest,
        caller="news",
        errors=_SELECTION_NOT_FOUND
        | {409: [ErrorCode.SELECTIONS_SNAPSHOT_ID_CONFLICT, ErrorCode.SELECTIONS_SNAPSHOT_ID_REFUSED]},
    ),
)
@in_lane(Lane.CHANGES)
def create_snapshot(request: AnyRequest, body: RawBody, deps: InjectedDeps) -> Response[Snapshot]:
    """create-selection-snapshot (G12): Active, its content fixed; idempotent on the id (G13)."""
    wanted = decode(request, body, CreateSnapshotRequest)
    try:
        found, made = snapshots.create_snapshot(deps.write_engine, wanted, deps.clock())
    except snapshots.SelectionNotFoundError:
        raise _selection_not_found() from None
    except snapshots.SnapshotIdRefusedError:
        code = ErrorCode.SELECTIONS_SNAPSHOT_ID_REFUSED
        raise ProblemError(409, code, "This id was answered 'not found' once, and stays so") from None
    except snapshots.SnapshotIdConflictError:
        code = ErrorCode.SELECTIONS_SNAPSHOT_ID_CONFLICT
        raise ProblemError(409, code, "This id is a snapshot of another selection") from None
    return Response(
        snapshot_answer(found),
        status_code=201 if made else 200,
        headers={"Location": SNAPSHOT_PATH.format(id=found.id)},
    )


@get(
    SNAPSHOTS_PATH,
    guards=[internal_news_only],
    opt=describe(
        "List the snapshots by their ids, without content, page by page",
        {200: SnapshotPage},
        caller="news",
        query={"after": "string", "limit": "integer"},
    ),
)
@in_lane(Lane.READS)
def list_snapshots(request: AnyRequest, deps: InjectedDeps) -> SnapshotPage:
    """What reconciling compares with: Active and Detached alike, after the id `after`, at most `limit`."""
    after, limit = _query(request, "after"), _query(request, "limit")
    if limit is not None and (re.fullmatch(r"[0-9]{1,4}", limit) is None or not 0 < int(limit) <= SNAPSHOTS_MOST):
        raise invalid(f"Must be a number from 1 to {SNAPSHOTS_MOST}.", field="limit")
    most = SNAPSHOTS_MOST if limit is None else int(limit)
    return snapshots.list_snapshots(deps.engine, None if after is None else uuid_of(after, "after"), most)


@get(
    SNAPSHOT_PATH.replace("{id}", "{snapshot_id:str}"),
    guards=[internal_news_only],
    opt=describe(
        "Get a snapshot with its content, whatever its status",
        {200: Snapshot},
        caller="news",
        errors=_SNAPSHOT_NOT_FOUND,
    ),
)
@in_lane(Lane.READS)
def get_snapshot(snapshot_id: FromPath[str], deps: InjectedDeps) -> Snapshot:
    """get-selection-snapshot: Active or Detached alike (INV-SNP-006)."""
    try:
        return snapshot_answer(snapshots.get_snapshot(deps.engine, uuid_of(snapshot_id, "snapshotId")))
    except snapshots.SnapshotNotFoundError:
        raise _snapshot_not_found() from None


@post(
    DETACH_PATH.replace("{id}", "{snapshot_id:str}"),
    status_code=200,
    guards=[internal_news_only],
    opt=describe(
        "Detach a snapshot, once; a repeat changes nothing and answers what the first one did",
        {200: DetachSelectionSnapshotResult},
        request=DetachRequest,
        caller="news",
        errors=_SNAPSHOT_NOT_FOUND,
    ),
)
@in_lane(Lane.CHANGES)
def detach_snapshot(
    request: AnyRequest, snapshot_id: FromPath[str], body: RawBody, deps: InjectedDeps
) -> DetachSelectionSnapshotResult:
    """Detach, to the letter of its document (D1–D14); the checks come in the order 401, 403, 400, 404 (G10)."""
    id_ = uuid_of(snapshot_id, "snapshotId")
    wanted = decode(request, body, DetachRequest)
    try:
        done = snapshots.detach_snapshot(
            deps.write_engine,
            id_,
            reason=wanted.reason,
            requested_by_user_id=wanted.requested_by_user_id,
            event_id=deps.new_id(),
            now=deps.clock(),
        )
    except snapshots.SnapshotNotFoundError:
        raise _snapshot_not_found() from None
    return detach_answer(done)


def _query(request: AnyRequest, name: str) -> str | None:
    given: list[str] = request.query_params.getall(name, [])
    if len(given) > 1:
        raise invalid("Parameter is given twice.", field=name)
    return given[0] if given else None


def _snapshot_not_found() -> ProblemError:
    return ProblemError(404, ErrorCode.SELECTIONS_SNAPSHOT_NOT_FOUND, MESSAGE_SNAPSHOT_NOT_FOUND)


def _selection_not_found() -> ProblemError:
    return ProblemError(404, ErrorCode.SELECTIONS_SELECTION_NOT_FOUND, "Selection not found")
