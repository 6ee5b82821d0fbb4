"""Who may call: guards that run before any body is read, so that the order of checks is 401, 403, then 400 (G10)."""

from typing import Any, Protocol
from uuid import UUID

from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import SkipValidation

from pin.access.checking import Caller, TokenVerifier
from pin.outgoing.tokens import TokenError
from pin.rules.contract import NEWS_CLIENT, ErrorCode
from web.problems import ProblemError

Connection = ASGIConnection[Any, Any, Any, Any]
InjectedCaller = NamedDependency[SkipValidation[Caller]]
"""A handler's parameter `caller`: whom the guard admitted."""


class _HasVerifier(Protocol):
    @property
    def verifier(self) -> TokenVerifier: ...


def authenticate(connection: Connection) -> Caller:
    """The caller of this request. Raises ProblemError 401 UNAUTHORIZED, with WWW-Authenticate, when there is none."""
    given = connection.headers.getall("authorization", [])
    if not given:
        raise _unauthorized("A bearer token is required.", "Bearer")
    scheme, _, token = given[0].strip().partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise _unauthorized("One bearer token is required.", 'Bearer error="invalid_request"')
    deps: _HasVerifier = connection.app.state.deps
    try:
        caller = deps.verifier.verify(token.strip())
    except TokenError:
        raise _unauthorized("The token is not valid.", 'Bearer error="invalid_token"') from None
    connection.scope["auth"] = caller
    return caller


def internal_news_only(connection: Connection, _: BaseRouteHandler) -> None:
    """Policy InternalNewsOnly (D2, INV-SNP-003): an m2m token of client `news`, and nothing else."""
    if authenticate(connection).client != NEWS_CLIENT:
        raise forbidden("Only the news service may call this.")


def users_only(connection: Connection, _: BaseRouteHandler) -> None:
    """A user of a tenant; `caller.user_id` and `caller.tenant_id` are set from here on."""
    if authenticate(connection).user_id is None:
        raise forbidden("Only a user may call this.")


def user_of(caller: Caller) -> tuple[UUID, UUID]:
    """The user and the tenant whom a route for users serves. Raises ProblemError 403 for a caller who is no user."""
    if caller.user_id is None or caller.tenant_id is None:
        raise forbidden("Only a user may call this.")
    return caller.user_id, caller.tenant_id


def forbidden(detail: str) -> ProblemError:
    """403 FORBIDDEN: identified, and not entitled."""
    return ProblemError(403, ErrorCode.FORBIDDEN, "Forbidden", detail)


def provide_caller(request: Request[Any, Any, Any]) -> Caller:
    """The dependency `caller` of handlers behind a guard."""
    caller: Caller = request.scope["auth"]
    return caller


def _unauthorized(detail: str, challenge: str) -> ProblemError:
    return ProblemError(401, ErrorCode.UNAUTHORIZED, "Unauthorized", detail, headers={"WWW-Authenticate": challenge})
