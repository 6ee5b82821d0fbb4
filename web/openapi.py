"""The API described as OpenAPI 3.1, JSON only: built from what each route says of itself, so that none is left out.

A route carries `opt=describe(...)`. `create_app` refuses a route under `/api` that does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from litestar import Request, Response, Router, get
from litestar.handlers import HTTPRouteHandler
from litestar.routes import BaseRoute, HTTPRoute

from pin.rules.contract import ErrorCode, Problem
from web.bulkheads import Lane, in_lane
from web.problems import PROBLEM_MEDIA_TYPE

OPENAPI_PATH = "/api/v1/openapi.json"

_KEY = "described"


@dataclass(frozen=True)
class Described:
    """What a route answers: `answers` by status (None: no body), `errors` the codes by status."""

    summary: str
    answers: Mapping[int, Any]
    request: Any = None
    caller: Literal["user", "news"] | None = None
    errors: Mapping[int, Sequence[ErrorCode]] = field(default_factory=dict)
    etag: bool = False
    if_match: bool = False
    media_type: str = "application/json"
    query: Mapping[str, str] = field(default_factory=dict)

    def codes(self, *, has_parameters: bool) -> dict[int, list[ErrorCode]]:
        """Every refusal by status: the route's own, and those that its kind of route may always give."""
        common: dict[int, list[ErrorCode]] = {}
        if self.caller:
            common |= {401: [ErrorCode.UNAUTHORIZED], 403: [ErrorCode.FORBIDDEN]}
        if self.request is not None or has_parameters:
            common[400] = [ErrorCode.VALIDATION_ERROR]
        if self.request is not None:
            common |= {413: [ErrorCode.PAYLOAD_TOO_LARGE], 415: [ErrorCode.UNSUPPORTED_MEDIA_TYPE]}
        if self.if_match:
            common |= {412: [ErrorCode.PRECONDITION_FAILED], 428: [ErrorCode.PRECONDITION_REQUIRED]}
        common |= {500: [ErrorCode.INTERNAL_ERROR], 503: [ErrorCode.UNAVAILABLE]}
        for status, codes in self.errors.items():
            common[status] = [*common.get(status, []), *(code for code in codes if code not in common.get(status, []))]
        return dict(sorted(common.items()))


def describe(
    summary: str,
    answers: Mapping[int, Any],
    *,
    request: Any = None,
    caller: Literal["user", "news"] | None = None,
    errors: Mapping[int, Sequence[ErrorCode]] | None = None,
    etag: bool = False,
    if_match: bool = False,
    media_type: str = "application/json",
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`opt` of a route handler. Name only the codes of the route's own in `errors`.

    `query` names the optional parameters of the query, each with its type (`string`, `integer`).

    401, 403 (with `caller`), 400 (with a body or a parameter), 413, 415 (with a body), 412, 428 (with
    `if_match`), 500 and 503 are added. `request` and the values of `answers` are msgspec structs.
    """
    return {_KEY: Described(summary, answers, request, caller, errors or {}, etag, if_match, media_type, query or {})}


def described(handler: HTTPRouteHandler) -> Described | None:
    """What the handler says of itself."""
    found: Described | None = handler.opt.get(_KEY)
    return found


def operations(routes: Iterable[BaseRoute]) -> list[tuple[str, str, HTTPRouteHandler]]:
    """(path, method in lower case, handler) of every route of the app, without the OPTIONS that Litestar adds."""
    return [
        (route.path_format, str(method).lower(), handler)
        for route in routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in sorted(handler.http_methods)
        if method != "OPTIONS"
    ]


def document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The OpenAPI document of `routes`. Raises LookupError for a route that does not describe itself.

    The console's routes describe themselves as well and are left out: they are pages for people, no API.
    """
    every = [(path, method, handler, _of(path, method, handler)) for path, method, handler in operations(routes)]
    found = [one for one in every if one[2].resolve_include_in_schema()]
    types = [Problem]
    for *_, described_ in found:
        types += [type_ for type_ in (described_.request, *described_.answers.values()) if _is_schema(type_)]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for path, method, handler, described_ in found:
        paths.setdefault(path, {})[method] = _operation(path, handler, described_)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pin",
            "version": "1",
            "description": (
                "Every refusal is application/problem+json with a `code`; a client may branch on it, on nothing else. "
                "An unknown route is answered 404 NOT_FOUND, another method 405 METHOD_NOT_ALLOWED with Allow."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def openapi_router() -> Router:
    """The route of the document. It is built when first asked for, from the app's routes as they then are."""
    return Router(path="/", route_handlers=[openapi_json])


@get(
    OPENAPI_PATH,
    opt=describe("This document", {200: None}),
)
@in_lane(Lane.READS)
def openapi_json(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The document, as JSON."""
    content = msgspec.json.encode(document(request.app.routes))
    return Response(content, media_type="application/json")


def _of(path: str, method: str, handler: HTTPRouteHandler) -> Described:
    found = described(handler)
    if found is None:
        raise LookupError(f"{method.upper()} {path} does not describe itself: give its handler opt=describe(...)")
    return found


def _operation(path: str, handler: HTTPRouteHandler, described_: Described) -> dict[str, Any]:
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": type_}}
        for name, type_ in described_.query.items()
    ]
    if described_.if_match:
        parameters.append({"name": "If-Match", "in": "header", "required": True, "schema": {"type": "string"}})
    operation: dict[str, Any] = {"summary": described_.summary, "operationId": handler.handler_name}
    if parameters:
        operation["parameters"] = parameters
    if described_.request is not None:
        operation["requestBody"] = {"required": True, "content": _content("application/json", described_.request)}
    if described_.caller:
        operation["security"] = [{"bearer": []}]
        operation["x-caller"] = described_.caller
    responses = {str(status): _answer(described_, type_) for status, type_ in described_.answers.items()}
    for status, codes in described_.codes(has_parameters=bool(names or described_.query)).items():
        responses[str(status)] = _refusal(status, codes)
    operation["responses"] = responses
    return operation


def _answer(described_: Described, type_: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": described_.summary}
    if described_.etag:
        answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
    if type_ is not None:
        answer["content"] = _content(described_.media_type, type_)
    return answer


def _refusal(status: int, codes: Sequence[ErrorCode]) -> dict[str, Any]:
    names = [str(code) for code in codes]
    schema = {
        "allOf": [{"$ref": "#/components/schemas/Problem"}, {"properties": {"code": {"enum": names}}}],
    }
    refusal: dict[str, Any] = {
        "description": ", ".join(names),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
    }
    if status == 401:  # noqa: PLR2004 - the one status that must carry this header (RFC 9110)
        refusal["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return refusal


def _content(media_type: str, type_: Any) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{type_.__name__}"} if _is_schema(type_) else {"type": "string"}
    return {media_type: {"schema": schema}}


def _is_schema(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)
