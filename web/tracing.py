"""A span around each request, continuing the caller's trace (D12), and its duration as a metric."""

import time

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.telemetry import metrics
from pin.telemetry.traces import context_of, span

_HEADERS = {b"traceparent", b"tracestate"}
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def traced(app: ASGIApp) -> ASGIApp:
    """Middleware: the span is named by method and route template, never by a path that holds ids."""

    async def continue_trace(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET:
            await app(scope, receive, send)
            return
        method, route = scope["method"], scope.get("path_template", "")
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        started, answered = time.monotonic(), 0
        with span(
            f"{method} {route}",
            context=context_of(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route},
        ) as serving:

            async def note_status(message: Message) -> None:
                nonlocal answered
                if message["type"] == "http.response.start":
                    answered = message["status"]
                    serving.set_attribute("http.response.status_code", answered)
                    if answered >= 500:  # noqa: PLR2004 - where our faults begin
                        serving.set_status(Status(StatusCode.ERROR))
                await send(message)

            try:
                await app(scope, receive, note_status)
            finally:
                metrics.SERVER_SECONDS.labels(
                    method if method in _METHODS else "other",  # a client may send any word
                    route or "unmatched",
                    f"{answered // 100}xx" if answered else "none",
                ).observe(time.monotonic() - started)

    return continue_trace
