"""The system: versions, settings, schema, sessions, sizes, and the runner's lock."""

from litestar import Response, get

from pin.operations import lock
from pin.operations.system import read_system
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, view

SYSTEM_PATH = f"{OPS_PATH}/system"


@get("/system", opt=describe("What runs, and on what", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def system_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """All of it as it stands; secrets are masked."""
    return view(
        request,
        console,
        "system.html",
        section=SYSTEM_PATH,
        system=read_system(console.engine, console.settings),
        holder=lock.show(console.engine),
    )
