"""Spans and their journey: run -> batch message -> attempt -> call -> selections, in one trace (J26, D12).

Exported only where the standard OTEL_EXPORTER_OTLP_ENDPOINT is set; without it spans still carry ids for the logs.
A collector that does not answer costs nothing: spans wait in a bounded queue that a thread of its own empties.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

tracer = trace.get_tracer("pin")

CLOSE_WITHIN = 2.0
"""Seconds that a stop waits for the last spans to be sent."""


class _Exporting(BatchSpanProcessor):
    """Lets spans that end after the stop go in silence: the library would log a warning for each."""

    _closed = False

    def on_end(self, span: ReadableSpan) -> None:
        if not self._closed:
            super().on_end(span)

    def shutdown(self) -> None:
        self._closed = True
        super().shutdown()  # type: ignore[no-untyped-call]


def configure_tracing(service: str) -> None:
    """Install the process's tracer provider, once a process: a further call keeps the first. Never on import."""
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    # Its own hook at exit would wait half a minute for a collector that does not answer: `close_tracing` is called.
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(_Exporting(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def close_tracing(within: float = CLOSE_WITHIN) -> None:
    """Send what waits, for at most `within` seconds; what is not sent by then is lost."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        closing = threading.Thread(target=provider.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(within)


@contextmanager
def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    context: Context | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Iterator[Span]:
    """A current span. An exception is noted by its class alone: its text may quote what no collector may hold (J24)."""
    with tracer.start_as_current_span(
        name,
        context=context,
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as started:
        try:
            yield started
        except BaseException as error:
            started.set_attribute("error.type", type(error).__name__)
            started.set_status(Status(StatusCode.ERROR))
            raise


def carrier() -> dict[str, str]:
    """The current span as headers (`traceparent`), for a message or a request."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers


def context_of(headers: Mapping[str, str]) -> Context:
    """The span that `headers` (lower-case names) continue."""
    return propagate.extract(headers)


def current_trace_id() -> str | None:
    """The current trace's id as 32 hex digits, None outside any."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
