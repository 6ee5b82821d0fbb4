"""Post / Snapshot: what each side says about one id, and whether they agree."""

from litestar import Response, get

from pin.operations import entries, subject
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, view
from web.ops.page import see_other
from web.problems import ProblemError

SUBJECT_PATH = f"{OPS_PATH}/subject"


@get(
    "/subject",
    opt=describe("What both sides say of a post or a snapshot", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def subject_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """A post's snapshots, or one snapshot, whichever the id in the URL is; an entry's id leads to the entry."""
    given = request.query_params.get("id", "").strip()
    fault, post, snapshots = "", None, None
    if given:
        try:
            id_ = uuid_of(given, "id")
        except ProblemError as problem:
            fault = problem.detail or ""
        else:
            engine, client = console.engine, console.client
            if entries.show(engine, id_, now=console.now(), retry=console.settings.retry) is not None:
                return see_other(f"{OPS_PATH}/entries/{id_}")
            post = subject.show_post(engine, client, id_)
            snapshots = post.snapshots if post else (subject.show_snapshot(engine, client, id_),)
    return view(
        request,
        console,
        "subject.html",
        section=SUBJECT_PATH,
        code=400 if fault else 200,
        given=given,
        fault=fault,
        post=post,
        snapshots=snapshots,
    )
