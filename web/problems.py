"""Refusals and failures as `application/problem+json` (RFC 9457) with the contract's `code`; none leaks internals."""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException

from db.errors import Meaning, meaning_of
from pin.rules.contract import MESSAGE_BAD_REQUEST, ErrorCode, Problem
from pin.telemetry.logs import get_logger

PROBLEM_MEDIA_TYPE = "application/problem+json"

log = get_logger(__name__)

_OF_STATUS: dict[int, tuple[ErrorCode, str]] = {
    400: (ErrorCode.VALIDATION_ERROR, MESSAGE_BAD_REQUEST),
    401: (ErrorCode.UNAUTHORIZED, "Unauthorized"),
    403: (ErrorCode.FORBIDDEN, "Forbidden"),
    404: (ErrorCode.NOT_FOUND, "Not found"),
    405: (ErrorCode.METHOD_NOT_ALLOWED, "Method not allowed"),
    412: (ErrorCode.PRECONDITION_FAILED, "Precondition failed"),
    413: (ErrorCode.PAYLOAD_TOO_LARGE, "Payload too large"),
    415: (ErrorCode.UNSUPPORTED_MEDIA_TYPE, "Unsupported media type"),
    428: (ErrorCode.PRECONDITION_REQUIRED, "Precondition required"),
    503: (ErrorCode.UNAVAILABLE, "Service unavailable"),
}
_LATER = {"Retry-After": "2"}
_ABORTED = "client disconnected prematurely"  # Litestar's word for a client that left before its body ended


class ProblemError(Exception):
    """A refusal, raised anywhere in the web. `title` and `detail` are shown to the caller as they stand.

    `errors` names the fields at fault, each as `{"field": "$.items[3]", "message": "…"}`.
    """

    is_counted = False
    """A metric counts it, so the log need not hold one line for each, however many there are."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        title: str,
        detail: str | None = None,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code, self.title, self.detail = status, code, title, detail
        self.headers = dict(headers or {})
        self.errors = [dict(error) for error in errors] if errors else None


def invalid(detail: str, *, field: str | None = None) -> ProblemError:
    """400 VALIDATION_ERROR under the contract's message (D3), naming the field where one is at fault."""
    errors = [{"field": field, "message": detail}] if field else None
    return ProblemError(400, ErrorCode.VALIDATION_ERROR, MESSAGE_BAD_REQUEST, detail, errors=errors)


def of_status(status: int, detail: str | None = None, headers: Mapping[str, str] | None = None) -> ProblemError:
    """The problem that a bare status stands for; a status without one of its own becomes 400 or 500."""
    if status not in _OF_STATUS and status >= 500:  # noqa: PLR2004 - where the classes of statuses part
        return ProblemError(500, ErrorCode.INTERNAL_ERROR, "Internal server error")
    code, title = _OF_STATUS.get(status, _OF_STATUS[400])
    return ProblemError(status if status in _OF_STATUS else 400, code, title, detail, headers)


def render(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The answer to any exception, logged once if it is our fault."""
    problem = noted(request, error)
    body = Problem(
        type=f"urn:pin:problem:{problem.code.lower().replace('_', '-')}",
        title=problem.title,
        status=problem.status,
        code=problem.code,
        detail=problem.detail,
        instance=request.scope["path"],
        errors=problem.errors,
    )
    content = {name: value for name, value in msgspec.to_builtins(body).items() if value is not None}
    return Response(
        msgspec.json.encode(content),
        status_code=problem.status,
        headers=problem.headers | {"Cache-Control": "no-store"},
        media_type=PROBLEM_MEDIA_TYPE,
    )


def noted(request: Request[Any, Any, Any], error: Exception) -> ProblemError:
    """What any exception means to whoever asked; logged once if it is our fault."""
    problem = _problem_of(error)
    if problem.status >= 500:  # noqa: PLR2004 - where our faults begin
        _log(request, problem, error)
    return problem


def _problem_of(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case HTTPException(status_code=status, headers=headers):
            return of_status(status, headers={name: value for name, value in (headers or {}).items() if value})
        case _:
            return _of_database(meaning_of(error))


def _of_database(meaning: Meaning | None) -> ProblemError:
    """503 with Retry-After for what passes by itself or by an operator's hand: nothing was changed (G30)."""
    match meaning:
        case Meaning.AWAY:
            return of_status(503, "The database cannot be reached.", headers=_LATER)
        case Meaning.BUSY:
            return of_status(503, "The database is busy. Nothing was changed; retry.", headers=_LATER)
        case Meaning.REFUSED:
            return of_status(503, "The database does not allow this to the server at present.", headers=_LATER)
        case Meaning.NOT_MIGRATED:
            return of_status(503, "The database's schema is not this version's.", headers=_LATER)
        case Meaning.BAD_DATA | Meaning.FAULT | None:
            return of_status(500)
        case _:
            assert_never(meaning)


def _log(request: Request[Any, Any, Any], problem: ProblemError, error: Exception) -> None:
    """One event a fault: where it arose, never what an exception says, for that may quote a statement's parameters."""
    if problem.is_counted or (isinstance(error, HTTPException) and error.detail == _ABORTED):
        return
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    log.error(
        "request failed",
        method=request.scope["method"],
        route=request.scope.get("path_template"),
        status=problem.status,
        code=str(problem.code),
        error=type(error).__name__,
        raised_at=[f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames],
    )
