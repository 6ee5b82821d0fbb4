"""What goes wrong below /ops is told as a page, with the status that an API's problem would have."""

from litestar import Response

from web.ops.console import OPS_PATH, AnyRequest, Console, SignInNeededError, sign_in_path
from web.ops.page import html, see_other
from web.ops.session import COOKIE, read_session
from web.problems import noted

_HINTS = {
    404: "There is no such page. It may have been purged, or the id may be incomplete.",
    405: "This page cannot be asked that way.",
    413: "That is more than the console takes at once.",
    503: "Nothing can be shown until the database answers; the job waits for it too and spends no attempts.",
}


def render_page(console: Console, request: AnyRequest, error: Exception) -> Response[bytes]:
    """The page for any exception below /ops, logged once if it is our fault. Asks the database nothing."""
    if isinstance(error, SignInNeededError):
        return _sign_in(request)
    problem = noted(request, error)
    session = read_session(request.cookies.get(COOKIE), console.operators, console.now())
    return html(
        "error.html",
        code=problem.status,
        headers=problem.headers,
        session=session,
        title=problem.title,
        detail=problem.detail or _HINTS.get(problem.status, ""),
        number=problem.status,
        pause=None,
        here=request.scope["path"],
        section="",
        now=console.now(),
        notice="",
    )


def _sign_in(request: AnyRequest) -> Response[bytes]:
    """To the sign-in page and back; a part that a page asks for by script tells the page to go there."""
    if request.headers.get("hx-request"):
        return html("signin_needed.html", code=401, headers={"HX-Redirect": f"{OPS_PATH}/login"})
    if request.scope["method"] not in {"GET", "HEAD"}:
        return html("login.html", code=401, next=OPS_PATH, name="", error="Your session is over. Sign in again.")
    return see_other(sign_in_path(request))
