"""Signing in and out."""

import math
from functools import cache
from urllib.parse import urlsplit

from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.params import RawBody

from pin.access.operators import hash_password, verify_password
from pin.telemetry.logs import get_logger
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, InjectedSession
from web.ops.forms import read_form, same_origin, signed_form
from web.ops.page import html, see_other
from web.ops.session import COOKIE, open_session
from web.ops.throttle import Guess

log = get_logger(__name__)


@get("/login", opt=describe("The sign-in page", {200: str}), include_in_schema=False, sync_to_thread=False)
def login_page(request: AnyRequest) -> Response[bytes]:
    """The form."""
    return html("login.html", next=_inside(request.query_params.get("next", "")), error="", name="")


@post("/login", opt=describe("Sign in", {303: None}), include_in_schema=False, status_code=303)
@in_lane(Lane.SIGN_INS)
def login(request: AnyRequest, body: RawBody, console: InjectedConsole) -> Response[bytes]:
    """A session for the right name and password; 401 with the form again otherwise; 429 after several wrong ones."""
    same_origin(request)
    form = read_form(request, body)
    name, password, wanted = form.one("name"), (form.fields.get("password") or [""])[0], _inside(form.one("next"))
    address = request.client.host if request.client else ""
    operator = console.operators.get(name)
    checked = operator.password_hash if operator else _nobody()
    guess = console.throttle.guess(address, lambda: verify_password(password, checked) and operator is not None)
    if guess is Guess.REFUSED:
        seconds = max(1, math.ceil(console.throttle.wait(address).total_seconds()))
        error = f"Too many wrong passwords. Try again in {seconds} s."
        headers = {"Retry-After": str(seconds)}
        return html("login.html", code=429, headers=headers, next=wanted, name=name, error=error)
    if guess is Guess.WRONG or operator is None:
        log.warning("console sign-in refused", address=address)
        error = "This name and password do not belong together."
        return html("login.html", code=401, next=wanted, name=name, error=error)
    log.info("console sign-in", operator=operator.name, role=str(operator.role))
    lifetime = console.settings.ops.session_lifetime
    answer = see_other(wanted)
    answer.set_cookie(_cookie(request, open_session(operator, console.now(), lifetime), int(lifetime.total_seconds())))
    return answer


@post("/logout", opt=describe("Sign out", {303: None}), include_in_schema=False, status_code=303, sync_to_thread=False)
def logout(request: AnyRequest, body: RawBody, session: InjectedSession) -> Response[bytes]:
    """Forget the session in this browser."""
    signed_form(request, body, session)
    answer = see_other(f"{OPS_PATH}/login")
    answer.set_cookie(_cookie(request, "", 0))
    return answer


@cache
def _nobody() -> str:
    """What an unknown name's password is checked against, so that it takes as long as a known one's."""
    return hash_password("nobody has this name")


def _cookie(request: AnyRequest, value: str, max_age: int) -> Cookie:
    """Lax and not Strict: an alert's link must lead a signed-in operator to the page. A GET changes nothing here."""
    return Cookie(
        key=COOKIE,
        value=value,
        path=OPS_PATH,
        max_age=max_age,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def _inside(path: str) -> str:
    """`path` if it is one of the console's, else its first page: a sign-in leads nowhere else."""
    parts = urlsplit(path) if path.isprintable() and "\\" not in path and ".." not in path else urlsplit("")
    inside = not parts.scheme and not parts.netloc and (parts.path == OPS_PATH or parts.path.startswith(f"{OPS_PATH}/"))
    return path if inside and not parts.path.startswith((f"{OPS_PATH}/login", f"{OPS_PATH}/logout")) else OPS_PATH
