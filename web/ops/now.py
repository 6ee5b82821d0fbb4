"""The first page: one sentence of verdict, and what it rests on."""

from datetime import timedelta
from typing import Any

from litestar import Response, get

from db.views import series
from pin.config.sections import QueueOptions, SnapshotDetachRetryOptions
from pin.operations.status import Status, read_status
from pin.operations.verdict import Limits, VerdictKind
from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.ops import wording
from web.ops.console import OPS_PATH, AnyRequest, Console, InjectedConsole, view
from web.ops.page import html

WINDOWS = {"1h": (timedelta(hours=1), timedelta(minutes=1)), "24h": (timedelta(hours=24), timedelta(minutes=15))}
"""Length and step of the charts, by what the URL says."""

BACKLOG_LIMIT = 100
"""A threshold of deploy/prometheus/rules.yaml, as those of the verdict's Limits are; a test compares them."""

_GROWTH = timedelta(minutes=15)
_DRAINED_FROM, _DRAINED_BY = timedelta(hours=1), timedelta(seconds=1)
"""How far back, and how closely, the peak is looked for that a backlog drains from."""
_TONES = {
    VerdictKind.DELIVERING: "good",
    VerdictKind.DRAINING: "good",
    VerdictKind.PAUSED: "warn",
}


@get("/", opt=describe("How the job stands", {200: str}), include_in_schema=False)
@in_lane(Lane.CONSOLE)
def now_page(request: AnyRequest, console: InjectedConsole) -> Response[bytes]:
    """Verdict, figures, charts."""
    chosen = request.query_params.get("window", "1h")
    window = chosen if chosen in WINDOWS else "1h"
    shown = _live(console)
    return view(request, console, "now.html", section=OPS_PATH, window=window, **shown, **_charts(console, window))


@get(
    "/live",
    opt=describe("The part of the first page that changes", {200: str}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def live_part(console: InjectedConsole) -> Response[bytes]:
    """Verdict and figures alone, for the page to put in their place every few seconds."""
    return html("now_live.html", now=console.now(), **_live(console))


def _live(console: Console) -> dict[str, Any]:
    now = console.now()
    status = read_status(console.engine, now=now, retry=console.settings.retry, queue=console.settings.queue)
    peak, grows = status.pending, False
    if status.pending:
        with console.engine.connect() as connection:
            points = series.backlog(connection, pending=status.pending, now=now, window=_DRAINED_FROM, step=_DRAINED_BY)
        peak = max(status.pending, *(point.pending for point in points))
        grows = status.pending > points[-1 - _GROWTH // _DRAINED_BY].pending
    return {
        "status": status,
        "tone": _tone(status),
        "peak": peak,
        "runbook": _runbook(console, status.verdict.runbook),
        "polling": wording.span(console.settings.retry.polling_interval),
        "red": _red(status, console.settings.retry, console.settings.queue, grows=grows),
    }


def _red(status: Status, retry: SnapshotDetachRetryOptions, queue: QueueOptions, *, grows: bool) -> dict[str, bool]:
    """Which figures are beyond what the alert rules allow (J27): the same thresholds, without their patience."""
    limits = Limits(retry.polling_interval, retry.lock_ttl, queue.lease, retry.batch_size)
    return {
        "pending": status.pending > BACKLOG_LIMIT and grows,
        "age": status.oldest_age > limits.age,
        "tick": status.next_tick is not None and status.at - status.next_tick > retry.polling_interval,
        "success": status.last_success is not None and status.at - status.last_success > limits.no_run,
        "unconsumed": status.batches.unconsumed_seconds > limits.unconsumed.total_seconds(),
    }


def _runbook(console: Console, name: str | None) -> tuple[str, str | None] | None:
    """The runbook's name, and where it is served if the settings say where."""
    if name is None:
        return None
    alerts = console.settings.alerts
    told = "runbooks_url" in alerts.model_fields_set and alerts.runbooks_url.startswith(("http://", "https://"))
    return f"docs/runbooks/{name}.md", f"{alerts.runbooks_url.rstrip('/')}/{name}.md" if told else None


def _tone(status: Status) -> str:
    tone = _TONES.get(status.verdict.kind, "bad")
    return "warn" if tone == "good" and status.quarantined else tone


def _charts(console: Console, window: str) -> dict[str, Any]:
    now = console.now()
    length, step = WINDOWS[window]
    objective = 2 * console.settings.retry.polling_interval.total_seconds()  # J28
    edges = sorted({*series.LAG_EDGES, objective})
    with console.engine.connect() as connection:
        pending = series.pending(connection, now)
        points = series.backlog(connection, pending=pending, now=now, window=length, step=step)
        counts = series.lags(connection, since=now - length, edges=edges)
    names = [f"≤ {wording.span(float(edge))}" for edge in edges]
    names.append(f"> {wording.span(float(edges[-1]))}")
    within = edges.index(objective) + 1
    total = sum(counts)
    return {
        "points": points,
        "lags": list(zip(names, counts, strict=True)),
        "within": within,
        "objective": wording.span(objective),
        "share": sum(counts[:within]) / total if total else None,
        "delivered": total,
        "windows": tuple(WINDOWS),
    }
