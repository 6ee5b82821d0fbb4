"""Spans and their journey: run -> batch message -> attempt -> call -> selections, in one trace (J26, D12).

Exported only where the standard OTEL_EXPORTER_OTLP_ENDPOINT is set. Without it nothing is recorded: a trace has its ids
for logs and headers, made once where it starts, and a span below that costs next to nothing.
A collector that does not answer costs nothing: spans wait in a bounded queue that a thread of its own empties.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pin.telemetry.logs import OTEL_IGNORED, get_logger

log = get_logger(__name__)  # above: what cannot be read is out of the environment before the imports below read it

# ruff: noqa: E402
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

tracer = trace.get_tracer("pin")
_propagator = TraceContextTextMapPropagator()

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


class _Provider(TracerProvider):
    """Knows whether anybody collects what it makes."""

    collected = False

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        super().add_span_processor(span_processor)
        self.collected = True


class _Silent(NonRecordingSpan):
    """A span that nobody collects: its ids, and the headers that name it, made once."""

    def __init__(self, context: SpanContext) -> None:
        super().__init__(context)
        self.headers: dict[str, str] | None = None


_IDS = RandomIdGenerator()
_UNCOLLECTED = nullcontext[Span](trace.INVALID_SPAN)


def configure_tracing(service: str) -> None:
    """Install the process's tracer provider, once a process: a further call keeps the first. Never on import.

    Whatever is wrong with OTEL_*, the process goes on: what is ignored is said once, by name (A36).
    """
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return
    if OTEL_IGNORED:
        log.warning("telemetry settings ignored", names=list(OTEL_IGNORED))
    try:
        provider = _provider(service)
    except Exception as error:  # noqa: BLE001 - the library may raise anything, and nothing of it may stop the work
        log.warning("tracing is off", error=type(error).__name__)
        return
    trace.set_tracer_provider(provider)


def _provider(service: str) -> _Provider:
    # Its own hook at exit would wait half a minute for a collector that does not answer: `close_tracing` is called.
    provider = _Provider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(_Exporting(OTLPSpanExporter()))
    return provider


def close_tracing(within: float = CLOSE_WITHIN) -> None:
    """Send what waits, for at most `within` seconds; what is not sent by then is lost."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        closing = threading.Thread(target=provider.shutdown, name="close-tracing", daemon=True)
        closing.start()
        closing.join(within)


def collecting() -> bool:
    """Whether anybody collects the spans of this process."""
    provider = trace.get_tracer_provider()
    return provider.collected if isinstance(provider, _Provider) else isinstance(provider, TracerProvider)


def span(
    name: str,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    context: Context | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> AbstractContextManager[Span]:
    """A current span. An exception is noted by its class alone: its text may quote what no collector may hold (J24).

    Where nobody collects, a span below another is nothing at all: the trace's id and the caller's headers stay.
    """
    if collecting():
        return _recorded(name, kind, context, attributes)
    parent = trace.get_current_span(context)
    if context is None and parent.get_span_context().is_valid:
        return _UNCOLLECTED
    return trace.use_span(_silent(parent.get_span_context()), record_exception=False, set_status_on_exception=False)


def _silent(parent: SpanContext) -> Span:
    if not parent.is_valid:
        # Marked as sampled: whether to collect their part of the trace is for the processes called to say.
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = SpanContext(_IDS.generate_trace_id(), _IDS.generate_span_id(), is_remote=False, trace_flags=sampled)
    return _Silent(parent)


@contextmanager
def _recorded(
    name: str, kind: SpanKind, context: Context | None, attributes: Mapping[str, AttributeValue] | None
) -> Iterator[Span]:
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
    current = trace.get_current_span()
    known = current.headers if isinstance(current, _Silent) else None
    if known is not None:
        return dict(known)
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    if isinstance(current, _Silent):
        current.headers = dict(headers)
    return headers


def context_of(headers: Mapping[str, str]) -> Context:
    """The span that `headers` (lower-case names) continue."""
    context = _propagator.extract(headers)
    if collecting() or not (continued := trace.get_current_span(context).get_span_context()).is_valid:
        return context
    return trace.set_span_in_context(_Silent(continued), context)


def current_trace_id() -> str | None:
    """The current trace's id as 32 hex digits, None outside any."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
