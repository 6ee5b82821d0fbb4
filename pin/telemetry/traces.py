"""Spans and their journey: run -> batch message -> attempt -> selections, in one trace (J26, D12).

Exported only where the standard OTEL_EXPORTER_OTLP_ENDPOINT is set; without it spans still carry ids for the logs.
"""

import os
from collections.abc import Mapping

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

tracer = trace.get_tracer("pin")


def configure_tracing(service: str) -> None:
    """Install the process's tracer provider; called once by each process, never on import."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


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
