"""Entries: the search line and its pages, and one entry's life."""

from typing import Any

from litestar import Response, get
from litestar.params import FromPath

from pin.operations import entries, paging
from pin.operations.life import MomentKind
from pin.rules.outbox import Status
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops import wording
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, view
from web.problems import invalid, of_status

ENTRIES_PATH = f"{OPS_PATH}/entries"
PAGE = 50

_TONES = {
    MomentKind.DONE: "good",
    MomentKind.LOST: "bad",
    MomentKind.QUARANTINED: "bad",
    MomentKind.ALERTED: "bad",
    MomentKind.UNDER_WAY: "warn",
    MomentKind.NOT_CALLED: "warn",
}


@get("/entries", opt=describe("Entries, searched and paged", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def entries_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """What the search line in the URL finds; 400, with the line to be mended, when it cannot be understood."""
    query = request.query_params.get("q", "").strip()
    after = request.query_params.get("after")
    found, fault = None, ""
    try:
        found = entries.search(console.engine, query, now=console.now(), after=after, limit=PAGE)
    except entries.SearchError as error:
        fault = str(error)
    except paging.PageKeyError as error:
        raise invalid(str(error)) from None
    return view(
        request,
        console,
        "entries.html",
        section=ENTRIES_PATH,
        code=400 if fault else 200,
        query=query,
        found=found,
        fault=fault,
        first=not after,
        states=[(str(status), _with_state(query, status)) for status in Status],
        stateless=_with_state(query, None),
        count_up_to=entries.COUNT_UP_TO,
        twin=wording.command("pin", "entries", "list", *([query] if query else [])),
    )


@get(
    "/entries/{entry_id:str}",
    opt=describe("One entry's life", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def entry_page(request: AnyRequest, entry_id: FromPath[str], console: InjectedConsole) -> Response[bytes]:
    """Its row, its timeline, what comes next."""
    id_ = uuid_of(entry_id, "entryId")
    life = entries.show(console.engine, id_, now=console.now(), retry=console.settings.retry)
    if life is None:
        raise of_status(404, "No entry has this id. A guard goes when its post's change succeeds; old ones are purged.")
    timeline = [(moment, _tone(moment)) for moment in life.timeline]
    return view(request, console, "entry.html", section=ENTRIES_PATH, life=life, timeline=timeline)


def _tone(moment: Any) -> str:
    if moment.attempt is not None:
        return {"Succeeded": "good", "Retried": "warn", "Quarantined": "bad"}.get(moment.attempt.outcome, "")
    return _TONES.get(moment.kind, "")


def _with_state(query: str, status: Status | None) -> str:
    """The search line with this state in place of its own."""
    others = [token for token in query.split() if not token.lower().startswith("state:")]
    return " ".join([*([f"state:{status}"] if status else []), *others])
