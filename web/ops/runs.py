"""Runs: each tick, and one with the attempts made for it."""

from litestar import Response, get
from litestar.params import FromPath

from db.outbox.runs import SUCCESSFUL
from pin.operations import paging, runs
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops import wording
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, view
from web.problems import invalid, of_status

RUNS_PATH = f"{OPS_PATH}/runs"
PAGE = 50

_GOOD = {str(result) for result in SUCCESSFUL}


@get("/runs", opt=describe("The job's ticks", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def runs_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """The ticks, newest first; those that another runner's lock skipped are faint, or left out."""
    skipped = request.query_params.get("skipped") != "no"
    after = request.query_params.get("after")
    try:
        found = runs.list_runs(console.engine, skipped=skipped, after=after, limit=PAGE)
    except paging.PageKeyError as error:
        raise invalid(str(error)) from None
    twin = wording.command("pin", "runs", "list")
    return view(
        request,
        console,
        "runs.html",
        section=RUNS_PATH,
        found=found,
        skipped=skipped,
        first=not after,
        good=_GOOD,
        twin=twin,
    )


@get("/runs/{run_id:str}", opt=describe("One tick", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def run_page(request: AnyRequest, run_id: FromPath[str], console: InjectedConsole) -> Response[bytes]:
    """How it ended, and its last attempts."""
    detail = runs.show_run(console.engine, uuid_of(run_id, "runId"))
    if detail is None:
        raise of_status(404, "No run has this id. Old ones are purged.")
    return view(request, console, "run.html", section=RUNS_PATH, detail=detail, good=_GOOD, most=runs.LAST_ATTEMPTS)
