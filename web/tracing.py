"""A span around each request, continuing the caller's trace (D12)."""

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from opentelemetry.trace import SpanKind, Status, StatusCode

from pin.telemetry.traces import context_of, tracer

_HEADERS = {b"traceparent", b"tracestate"}


def traced(app: ASGIApp) -> ASGIApp:
    """Middleware: the span is named by method and route template, never by a path that holds ids."""

    async def continue_trace(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.WEBSOCKET:
            await app(scope, receive, send)
            return
        method, route = scope["method"], scope.get("path_template", "")
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
        with tracer.start_as_current_span(
            f"{method} {route}",
            context=context_of(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "http.route": route},
        ) as span:

            async def note_status(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    if status >= 500:  # noqa: PLR2004 - where our faults begin
                        span.set_status(Status(StatusCode.ERROR))
                await send(message)

            await app(scope, receive, note_status)

    return continue_trace
