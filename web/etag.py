"""Optimistic concurrency over HTTP: a row's revision as a strong ETag, and If-Match required on a change."""

import re
from typing import Any, TypeVar

from litestar import Request, Response

from web.problems import of_status

T = TypeVar("T")

_TAG = re.compile(r'"([0-9]{1,18})"')


def etag_of(revision: int) -> str:
    """The ETag of a revision."""
    return f'"{revision}"'


def tagged(content: T, revision: int, *, status: int | None = None, location: str | None = None) -> Response[T]:
    """An answer with the ETag of what it shows; `location` names what was created."""
    headers = {"ETag": etag_of(revision)} | ({"Location": location} if location else {})
    return Response(content, status_code=status, headers=headers)


def expected_revisions(request: Request[Any, Any, Any]) -> frozenset[int] | None:
    """The revisions that If-Match admits; None for `*`, which admits any.

    Raises ProblemError 428 when the header is missing. A weak or foreign tag matches nothing, so an If-Match of only
    such tags gives an empty set, and the caller's comparison its 412.
    """
    given = request.headers.getall("if-match", [])
    if not given:
        raise of_status(428, "Send the ETag you have seen in If-Match.")
    tags = [tag.strip() for value in given for tag in value.split(",")]
    if tags == ["*"]:
        return None
    return frozenset(int(match[1]) for tag in tags if (match := _TAG.fullmatch(tag)))
