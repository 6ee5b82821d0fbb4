"""The audit: who did what to which entries, and why."""

from collections.abc import Mapping

from litestar import Response, get

from pin.operations import audit, paging
from web.body import uuid_of
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops import wording
from web.ops.console import OPS_PATH, AnyRequest, InjectedConsole, view
from web.problems import invalid

AUDIT_PATH = f"{OPS_PATH}/audit"
PAGE = 50


@get("/audit", opt=describe("Who did what, and why", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def audit_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """The audit, newest first, narrowed by action, actor or entry."""
    asked = {name: request.query_params.get(name, "").strip() for name in ("action", "actor", "entry")}
    after = request.query_params.get("after")
    try:
        found = audit.list_audit(
            console.engine,
            action=asked["action"] or None,
            actor=asked["actor"].replace("\0", "") or None,
            entry_id=uuid_of(asked["entry"], "entry") if asked["entry"] else None,
            after=after,
            limit=PAGE,
        )
    except paging.PageKeyError as error:
        raise invalid(str(error)) from None
    kept = "".join(f"&{name}={wording.in_url(value)}" for name, value in asked.items() if value)
    return view(
        request,
        console,
        "audit.html",
        section=AUDIT_PATH,
        found=found,
        asked=asked,
        kept=kept,
        first=not after,
        actions=audit.ACTIONS,
        twin=wording.command("pin", "audit", "list", *_options(asked)),
    )


def _options(asked: Mapping[str, str]) -> list[str]:
    return [word for name, value in asked.items() if value for word in (f"--{name}", value)]
