"""What orchestrators and Prometheus ask: is the process up, may it have traffic, what has it counted."""

import msgspec
from litestar import Response, Router, get
from prometheus_client import CONTENT_TYPE_LATEST

from db import migrate
from db.contract import Work
from pin.config.settings import Settings
from pin.telemetry.metrics import exposition
from web.bulkheads import Lane, in_lane
from web.deps import InjectedDeps
from web.openapi import describe
from web.problems import of_status


class Health(msgspec.Struct, frozen=True):
    """The answer of a probe that is content."""

    status: str


@get("/health/live", opt=describe("The process answers", {200: Health}), sync_to_thread=False)
def live() -> Response[bytes]:
    """200 as long as the process answers; says nothing of the database, so that its loss restarts nobody."""
    return _ok()


@get("/health/ready", opt=describe("The process may have traffic", {200: Health}))
@in_lane(Lane.PROBES)
def ready(deps: InjectedDeps) -> Response[bytes]:
    """200 when this process could do its work now: its writes, tried and rolled back; 503 UNAVAILABLE otherwise (G29).

    Selections' absence never makes news unready (J32); a process that drains listens no more.
    """
    if fault := migrate.not_ready(deps.probe_engine or deps.engine, _works(deps.settings)):
        raise of_status(503, f"{fault[0].upper()}{fault[1:]}.")
    return _ok()


@get(
    "/metrics",
    opt=describe("Metrics in Prometheus' text format", {200: str}, media_type="text/plain"),
)
@in_lane(Lane.PROBES)
def metrics(deps: InjectedDeps) -> Response[bytes]:
    """What this process counted, then what the collectors of `deps` read; a lost database costs only the latter."""
    content = exposition(deps.collectors)
    return Response(content, headers={"Content-Type": CONTENT_TYPE_LATEST})


def health_router() -> Router:
    """`/health/live`, `/health/ready` and `/metrics`, open to whoever reaches the port."""
    return Router(path="/", route_handlers=[live, ready, metrics])


def _works(settings: Settings) -> list[Work]:
    served = {"news": Work.NEWS, "ops": Work.NEWS, "selections": Work.SELECTIONS}
    return sorted({served[context] for context in settings.contexts if context in served})


def _ok() -> Response[bytes]:
    return Response(
        msgspec.json.encode(Health("ok")), media_type="application/json", headers={"Cache-Control": "no-store"}
    )
