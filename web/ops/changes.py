"""What the console's changes have in common: a form route, and who changes what, why and when."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from litestar import Response, post
from litestar.handlers import HTTPRouteHandler

from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import AnyRequest, Console
from web.ops.forms import Form, submitted, told_in_words
from web.ops.session import Session

Handler = Callable[..., Response[bytes]]


class Signature(TypedDict):
    """Who changes something, why, and at which moment: what every changing operation asks for."""

    actor: str
    reason: str
    now: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A form by which an operator changes something, and what it is signed with."""

    form: Form
    signed: Signature


def change_route(path: str, summary: str) -> Callable[[Handler], HTTPRouteHandler]:
    """A route that takes a form, runs in the console's lane and answers 303."""

    def decorate(handler: Handler) -> HTTPRouteHandler:
        in_console: Callable[..., Awaitable[Any]] = in_lane(Lane.CONSOLE)(handler)
        return post(path, opt=describe(summary, {303: None}), include_in_schema=False, status_code=303)(in_console)

    return decorate


@contextmanager
def change_of(
    request: AnyRequest, body: bytes, console: Console, session: Session, *refusals: type[Exception]
) -> Iterator[Change]:
    """The change that the form asks for. What the operation inside refuses is a 400 that says why.

    Raises ProblemError 403 for a viewer and for a form that is not of this session.
    """
    form = submitted(request, body, session)
    with told_in_words(*refusals):
        yield Change(form, Signature(actor=session.operator.name, reason=form.one("reason"), now=console.now()))
