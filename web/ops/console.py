"""What the console's handlers are given, and what a page needs of a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import SkipValidation
from litestar.types import Guard
from sqlalchemy import Engine

from db.runner import pause
from pin.access.operators import Operator
from pin.config.settings import Settings
from pin.outgoing.selections import SelectionsClient
from web.deps import Deps
from web.ops.page import html
from web.ops.session import COOKIE, Session, read_session
from web.ops.throttle import Throttle

OPS_PATH = "/ops"

AnyRequest = Request[Any, Any, Any]


NOTICES = {
    "paused": "The job is paused.",
    "paused-before": "The job was paused already; that pause stays as it is.",
    "resumed": "The job is resumed: the next tick claims again.",
    "not-paused": "The job was not paused.",
    "released": "That session is ended and the lock is free.",
    "not-held": "That session does not hold the lock any more.",
    "alerts-due": "The next tick tells the selected alerts.",
    "alerts-given-up": "The selected alerts are given up.",
    "stopped": "The re-enqueue is stopped: the rest stays quarantined.",
}
"""What a page may say of the change before it, by the word in its URL: a link can make it say nothing else."""


@dataclass(frozen=True)
class Console:
    """The console's parts."""

    deps: Deps
    operators: Mapping[str, Operator]
    throttle: Throttle

    @property
    def engine(self) -> Engine:
        """The database of news."""
        return self.deps.engine

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.deps.settings

    @property
    def client(self) -> SelectionsClient:
        """The client for selections. Raises LookupError without one."""
        if self.deps.client is None:
            raise LookupError("the console needs a client for selections")
        return self.deps.client

    def now(self) -> datetime:
        """The application's clock."""
        return self.deps.clock()


InjectedConsole = NamedDependency[SkipValidation[Console]]
"""A handler's parameter `console`."""

InjectedSession = NamedDependency[SkipValidation[Session]]
"""A handler's parameter `session`: who is signed in."""


class SignInNeededError(Exception):
    """Nobody is signed in."""


def signed_in(console: Console) -> Guard:
    """Guard of every page: raises SignInNeededError unless the cookie is a session's."""

    def check(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        session = read_session(connection.cookies.get(COOKIE), console.operators, console.now())
        if session is None:
            raise SignInNeededError
        connection.scope["auth"] = session

    return check


def provide_session(request: AnyRequest) -> Session:
    """The dependency `session` of handlers behind `signed_in`."""
    session: Session = request.scope["auth"]
    return session


def sign_in_path(request: AnyRequest) -> str:
    """The sign-in page, which leads back to where the request was going."""
    wanted = request.scope["path"]
    if query := request.scope["query_string"].decode("latin-1"):
        wanted += f"?{query}"
    return f"{OPS_PATH}/login?next={quote(wanted, safe='')}"


def view(
    request: AnyRequest, console: Console, template: str, *, section: str = "", code: int = 200, **shown: Any
) -> Response[bytes]:
    """A page of the console for whoever is signed in: `section` is the path of the part it belongs to."""
    with console.engine.connect() as connection:
        paused = pause.read(connection)
    return html(
        template,
        code=code,
        session=provide_session(request),
        pause=paused,
        here=request.scope["path"],
        section=section,
        now=console.now(),
        notice=NOTICES.get(request.query_params.get("notice", ""), ""),
        **shown,
    )
