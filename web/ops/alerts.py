"""Alerts: which sinks have not been told of which quarantines; an operator has them tried now, or gives them up."""

from litestar import Response, get, post
from litestar.params import RawBody

from db.outbox.alerts import AlertRow
from pin.operations import alerts
from pin.rules.alerts import SINKS
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, InjectedSession, view
from web.ops.forms import submitted, told_in_words
from web.ops.page import see_other
from web.problems import invalid

ALERTS_PATH = f"{OPS_PATH}/alerts"
SHOWN = 100


@get("/alerts", opt=describe("Alerts that a sink has not taken", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def alerts_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """How much each sink has not been told, and what."""
    chosen = request.query_params.get("sink", "")
    sink = chosen if chosen in SINKS else None
    return view(
        request,
        console,
        "alerts.html",
        section=ALERTS_PATH,
        sinks=alerts.counts(console.engine),
        sink=sink,
        rows=alerts.list_alerts(console.engine, sink=sink, limit=SHOWN),
        shown=SHOWN,
    )


@post("/alerts", opt=describe("Retry alerts, or give them up", {303: None}), include_in_schema=False, status_code=303)
@in_lane(Lane.CONSOLE)
def change_alerts(
    request: AnyRequest, body: RawBody, console: InjectedConsole, session: InjectedSession
) -> Response[bytes]:
    """Those that were selected, as far as they are untold still."""
    form = submitted(request, body, session)
    verb = {"retry": alerts.retry, "give-up": alerts.give_up}.get(form.one("what"))
    if verb is None:
        raise invalid("The form says neither retry nor give up.")
    rows: list[AlertRow] = []
    for sink, ids in _selected(form.all("alert")).items():
        with told_in_words():
            rows += alerts.chosen(console.engine, alerts.Chosen(tuple(uuid_of(one, "eventId") for one in ids), sink))
    with told_in_words():
        verb(console.engine, rows, actor=session.operator.name, reason=form.one("reason"), now=console.now())
    return see_other(f"{ALERTS_PATH}?notice={'alerts-due' if form.one('what') == 'retry' else 'alerts-given-up'}")


def _selected(given: list[str]) -> dict[str, list[str]]:
    """`sink/event` of each box that was ticked, by sink. Raises ProblemError 400 where none was."""
    if not given:
        raise invalid("Select at least one alert.")
    found: dict[str, list[str]] = {}
    for one in given:
        sink, _, event = one.partition("/")
        found.setdefault(sink, []).append(event)
    return found
