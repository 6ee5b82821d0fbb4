"""What an operator does to the job itself: pause, resume, take the lock from a runner that hangs."""

from litestar import Response
from litestar.params import RawBody

from pin.operations import lock, pause
from web.ops.changes import change_of, change_route
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, InjectedSession
from web.ops.page import see_other
from web.problems import invalid


@change_route("/pause", "Pause the job")
def pause_job(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Nothing is claimed from now on."""
    with change_of(request, body, console, session) as change:
        _, made = pause.pause(console.engine, **change.signed)
    return see_other(f"{OPS_PATH}?notice={'paused' if made else 'paused-before'}")


@change_route("/resume", "Resume the job")
def resume_job(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """The next tick claims again."""
    with change_of(request, body, console, session) as change:
        ended = pause.resume(console.engine, **change.signed)
    return see_other(f"{OPS_PATH}?notice={'resumed' if ended else 'not-paused'}")


@change_route("/lock/release", "Take the runner's lock from a session")
def release_lock(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """End the session that was shown as the holder, if it is so still."""
    with change_of(request, body, console, session) as change:
        pid = change.form.one("pid")
        if not (pid.isascii() and pid.isdigit() and len(pid) <= 9):  # noqa: PLR2004 - a process id's digits
            raise invalid("The form names no session.")
        released = lock.release(console.engine, pid=int(pid), **change.signed)
    return see_other(f"{OPS_PATH}/system?notice={'released' if released else 'not-held'}")
