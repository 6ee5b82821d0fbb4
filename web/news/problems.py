"""Refusals of the news context as problems: one status and one code each."""

from typing import Any

from litestar import Request, Response

from pin.news.errors import (
    BlockRefused,
    NewsError,
    NotTheAuthor,
    PostNotFound,
    RevisionStale,
    SelectionNotFound,
    SnapshotNotShown,
    SnapshotTwice,
    StateConflict,
    SwitchRefused,
    VersionNotFound,
)
from pin.outgoing.selections import SelectionsUnavailable
from pin.rules.contract import MESSAGE_BAD_REQUEST, ErrorCode
from pin.telemetry.logs import get_logger
from web.etag import etag_of
from web.problems import ProblemError, render

_PROBLEMS: dict[type[Exception], tuple[int, ErrorCode, str]] = {
    PostNotFound: (404, ErrorCode.NEWS_POST_NOT_FOUND, "Post not found"),
    VersionNotFound: (404, ErrorCode.NOT_FOUND, "Version not found"),
    NotTheAuthor: (403, ErrorCode.FORBIDDEN, "Forbidden"),
    RevisionStale: (412, ErrorCode.PRECONDITION_FAILED, "Precondition failed"),
    StateConflict: (409, ErrorCode.NEWS_POST_STATE_CONFLICT, "Not in this status"),
    SwitchRefused: (409, ErrorCode.NEWS_SWITCH_REFUSED, "Not switched"),
    # 409, for what a post shows is its state: the same request may have been right a moment ago.
    SnapshotNotShown: (409, ErrorCode.NEWS_SNAPSHOT_NOT_SHOWN, "Snapshot not shown"),
    SnapshotTwice: (400, ErrorCode.VALIDATION_ERROR, MESSAGE_BAD_REQUEST),
    # Not 404: that would say that the post is not there.
    SelectionNotFound: (400, ErrorCode.SELECTIONS_SELECTION_NOT_FOUND, "Selection not found"),
    SelectionsUnavailable: (503, ErrorCode.NEWS_SELECTIONS_UNAVAILABLE, "Selections cannot be reached"),
}

_log = get_logger(__name__)


def refuse(request: Request[Any, Any, Any], error: NewsError | SelectionsUnavailable) -> Response[bytes]:
    """The router's exception handler. A NewsError without a line in the table is our fault and answered 500."""
    return render(request, problem_of(error) if type(error) in _PROBLEMS else error)


def problem_of(error: NewsError | SelectionsUnavailable) -> ProblemError:
    """The problem that the refusal is answered with. Raises KeyError for one that the table lacks."""
    status, code, title = _PROBLEMS[type(error)]
    match error:
        case BlockRefused():
            field = f"$.blocks[{error.position}].{error.field}"
            return ProblemError(status, code, title, str(error), errors=[{"field": field, "message": str(error)}])
        case RevisionStale():
            return ProblemError(status, code, title, str(error), headers={"ETag": etag_of(error.revision)})
        case SelectionsUnavailable():
            _log.warning("selections unavailable", errorCode=str(error))
            return ProblemError(status, code, title, "Nothing has changed; try again.")
        case _:
            return ProblemError(status, code, title, str(error))
