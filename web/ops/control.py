"""What an operator does to the job itself: pause, resume, take the lock from a runner that hangs."""

from litestar import Response, post
from litestar.params import RawBody

from pin.operations import lock, pause
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, InjectedSession
from web.ops.forms import submitted, told_in_words
from web.ops.page import see_other
from web.problems import invalid


@post("/pause", opt=describe("Pause the job", {303: None}), include_in_schema=False, status_code=303)
@in_lane(Lane.CONSOLE)
def pause_job(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Nothing is claimed from now on."""
    form = submitted(request, body, session)
    with told_in_words():
        _, made = pause.pause(console.engine, actor=session.operator.name, reason=form.one("reason"), now=console.now())
    return see_other(f"{OPS_PATH}?notice={'paused' if made else 'paused-before'}")


@post(
    "/resume",
    opt=describe("Resume the job", {303: None}),
    include_in_schema=False,
    status_code=303,
)
@in_lane(Lane.CONSOLE)
def resume_job(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """The next tick claims again."""
    form = submitted(request, body, session)
    with told_in_words():
        ended = pause.resume(console.engine, actor=session.operator.name, reason=form.one("reason"), now=console.now())
    return see_other(f"{OPS_PATH}?notice={'resumed' if ended else 'not-paused'}")


@post(
    "/lock/release",
    opt=describe("Take the runner's lock from a session", {303: None}),
    include_in_schema=False,
    status_code=303,
)
@in_lane(Lane.CONSOLE)
def release_lock(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """End the session that was shown as the holder, if it is so still."""
    form = submitted(request, body, session)
    pid = form.one("pid")
    if not (pid.isascii() and pid.isdigit() and len(pid) <= 9):  # noqa: PLR2004 - a process id's digits
        raise invalid("The form names no session.")
    with told_in_words():
        released = lock.release(
            console.engine, pid=int(pid), actor=session.operator.name, reason=form.one("reason"), now=console.now()
        )
    return see_other(f"{OPS_PATH}/system?notice={'released' if released else 'not-held'}")
