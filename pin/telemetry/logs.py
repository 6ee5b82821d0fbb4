"""Structured logs: JSON lines in services, readable on a terminal; each line names its trace and its run (J24, J31).

Events and fields are listed in docs/logs.md. Nothing here logs a header, a body or a token; untrusted text reaches a
log only as class and code. Every line is redacted before it is written, for what exceptions and libraries say.
"""

import io
import logging
import os
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pin.telemetry.otel_environment import take_out_unreadable

OTEL_IGNORED = take_out_unreadable(os.environ)
"""The OTEL_* variables that are not followed. Taken out before the library below is imported, which reads them then."""

# ruff: noqa: E402
import msgspec
import structlog
from opentelemetry import trace

from pin.telemetry.redaction import is_plain, redact

_QUIET = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "apscheduler": logging.WARNING,
    "alembic": logging.WARNING,
}


_LEVELS = ("info", "warning", "error")
_ENCODER = msgspec.json.Encoder()
_stamped: list[str] = []
"""The process's name where lines are JSON."""


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Leaves what `write_lines` has rendered as it is."""

    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg) if hasattr(record, "rendered") else super().format(record)


def configure_logging(*, log_format: str, level: str, process: str) -> None:
    """Send structlog and the standard library's loggers to stderr, one event a line, stamped with `process`.

    Called once by each process, never on import.
    """
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _stamp(process),
        _trace_id,
        structlog.processors.format_exc_info,
        redact,
    ]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer(separators=(",", ":"))
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    if isinstance(sys.stderr, io.TextIOWrapper):  # whatever the terminal's encoding, no line is lost for a letter
        sys.stderr.reconfigure(errors="backslashreplace")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Formatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))
    _stamped[:] = [process] if log_format == "json" else []


class Line(NamedTuple):
    """One event of many that are written together."""

    level: str
    event: str
    facts: Mapping[str, Any]


def line(level: str, event: str, **facts: Any) -> Line:
    """An event for `write_lines`."""
    return Line(level, event, facts)


def write_lines(logger: str, lines: Iterable[Line]) -> None:
    """Log many events at once: as JSON they are encoded once each and written in one piece.

    Each is the line that `get_logger(logger)` would write. What the encoder cannot have, or a rule of redaction may
    change, and every line in another format, goes that way.
    """
    root, slow = logging.getLogger(), get_logger(logger)
    if not _stamped:
        for each in lines:
            getattr(slow, each.level)(each.event, **each.facts)
        return
    context = {
        **structlog.contextvars.get_contextvars(),
        "logger": logger,
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "process": _stamped[0],
    }
    context = dict(_trace_id(None, "", context))
    enabled = {name: logging.getLogger(logger).isEnabledFor(getattr(logging, name.upper())) for name in _LEVELS}
    written: list[str] = []
    for each in lines:
        if not enabled[each.level]:
            continue
        try:
            text = _ENCODER.encode({**each.facts, **context, "level": each.level, "event": each.event}).decode()
        except (TypeError, ValueError):
            text = ""
        if text and is_plain(text):
            written.append(text)
        else:
            getattr(slow, each.level)(each.event, **each.facts)
    if written:
        record = root.makeRecord(logger, logging.INFO, "", 0, "\n".join(written), (), None)
        record.rendered = True
        logging.getLogger(logger).handle(record)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module; usable before `configure_logging`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _stamp(process: str) -> structlog.types.Processor:
    def add(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("process", process)
        return event

    return add


def _trace_id(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", format(context.trace_id, "032x"))
    return event
