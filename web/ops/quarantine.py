"""Quarantine: groups by error, and giving entries back by a plan: preview, reason, a few first, then the rest."""

from litestar import Response, get, post
from litestar.params import FromPath, RawBody

from db.outbox.plans import PlanState
from pin.operations import plans, quarantine
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops import wording
from web.ops.changes import change_of, change_route
from web.ops.console import OPS_PATH, AnyRequest, Console, InjectedConsole, InjectedSession, view
from web.ops.forms import Form, submitted
from web.ops.page import html, see_other
from web.problems import invalid, of_status

QUARANTINE_PATH = f"{OPS_PATH}/quarantine"
SHOWN = 50
FIRST = 5
"""Canaries that the form proposes."""

_DIGITS = 5


@get(
    "/quarantine",
    opt=describe("Quarantined entries by their error", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def quarantine_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """The groups, the entries of one or of all, and the plans of late."""
    chosen = request.query_params.get("group", "")
    found = quarantine.list_quarantined(console.engine, limit=plans.MOST)
    groups = [(group, wording.tag(group.error)) for group in quarantine.groups(console.engine)]
    wanted = next((group for group, tag in groups if tag == chosen), None)
    if wanted is not None:
        found = [one for one in found if one.last_error == wanted.error]
    return view(
        request,
        console,
        "quarantine.html",
        section=QUARANTINE_PATH,
        groups=groups,
        wanted=wanted,
        entries=found[:SHOWN],
        total=len(found),
        plans=plans.list_plans(console.engine, limit=10),
    )


@post(
    "/quarantine/preview",
    opt=describe("Freeze what is to be given back", {303: None}),
    include_in_schema=False,
    status_code=303,
)
@in_lane(Lane.CONSOLE)
def preview(request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession) -> Response[bytes]:
    """Keep the set as it is now, and show it. Nothing has moved yet."""
    form = submitted(request, body, session)
    seen = plans.preview(console.engine, _filter(console, form))
    if not seen.entries:
        raise invalid("Nothing of that is quarantined any more. Open the page again to see what is.")
    plan_id = plans.keep(console.engine, seen, actor=session.operator.name, now=console.now())
    return see_other(f"{QUARANTINE_PATH}/plans/{plan_id}")


@get(
    "/quarantine/plans/{plan_id:str}",
    opt=describe("A set to be given back, and how far it is", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def plan_page(request: AnyRequest, plan_id: FromPath[str], console: InjectedConsole) -> Response[bytes]:
    """The frozen set; before the start the form, afterwards what becomes of it."""
    found = _plan(console, plan_id)
    size = len(found.plan.entries)
    return view(
        request,
        console,
        "plan.html",
        section=QUARANTINE_PATH,
        found=found,
        proposed=FIRST if size > FIRST else 0,
        cut=size >= plans.MOST,
        twin=_twin(found),
    )


@get(
    "/quarantine/plans/{plan_id:str}/live",
    opt=describe("The part of a plan's page that changes", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def plan_live(plan_id: FromPath[str], console: InjectedConsole) -> Response[bytes]:
    """How far it is. Looking lets a plan take the step that the next run would have it take."""
    return html("plan_live.html", found=_plan(console, plan_id), now=console.now())


@change_route("/quarantine/plans/{plan_id:str}/start", "Requeue the set")
def start(
    request: AnyRequest, plan_id: FromPath[str], body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Its canaries, or all of it. What has changed since the preview is left alone."""
    with change_of(request, body, console, session, plans.PlanError) as change:
        id_ = uuid_of(plan_id, "planId")
        plans.start(console.engine, id_, canary=_number(change.form.one("canary") or "0"), **change.signed)
    return see_other(f"{QUARANTINE_PATH}/plans/{id_}")


@change_route("/quarantine/plans/{plan_id:str}/stop", "Stop a plan")
def stop(
    request: AnyRequest, plan_id: FromPath[str], body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """The rest stays quarantined; the canaries stay the job's."""
    with change_of(request, body, console, session, plans.PlanError) as change:
        id_ = uuid_of(plan_id, "planId")
        plans.stop(console.engine, id_, **change.signed)
    return see_other(f"{QUARANTINE_PATH}/plans/{id_}?notice=stopped")


def _plan(console: Console, plan_id: str) -> plans.PlanView:
    """The plan, moved on if its canary is over. Raises ProblemError 404 for an unknown one."""
    id_ = uuid_of(plan_id, "planId")
    found = plans.show(console.engine, id_)
    if found is not None and found.plan.state is PlanState.CANARY and plans.advance(console.engine, console.now()):
        found = plans.show(console.engine, id_)
    if found is None:
        raise of_status(404, "No plan has this id.")
    return found


def _filter(console: Console, form: Form) -> plans.Filter:
    """What the form means: these ids, a group, or everything. Raises ProblemError 400 for a form that names nothing."""
    ids = [uuid_of(text, "id") for text in form.all("id")]
    match form.one("what"):
        case "group":
            errors = {wording.tag(group.error): group.error for group in quarantine.groups(console.engine)}
            if form.one("group") not in errors:
                raise invalid("Nothing of that group is quarantined any more.")
            return plans.Filter(error=errors[form.one("group")], by_error=True)
        case "all":
            return plans.Filter()
        case _ if ids:
            return plans.Filter(ids=tuple(dict.fromkeys(ids)))
        case _:
            raise invalid("Select at least one entry.")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise invalid("The number to try first must be 0 or more.")
    return int(text)


def _twin(found: plans.PlanView) -> str:
    """The command for what the page offers: to give the set back, or, once that is done, to look at it."""
    plan = found.plan
    words: list[object] = ["pin", "quarantine", "requeue"]
    if plan.state is not PlanState.PREVIEWED:
        return wording.command("pin", "quarantine", "plan", "show", plan.id)
    if plan.filter == "all":
        words.append("--all")
    elif plan.filter.startswith("error "):
        words += ["--error", plan.filter.removeprefix("error ")]
    else:
        words += [one.entry_id for one in plan.entries[:SHOWN]]
    return wording.command(*words, *(["--canary", FIRST] if len(plan.entries) > FIRST else []), "--reason", "WHY")
