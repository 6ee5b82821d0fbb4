import json
import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from pin.telemetry import traces
from pin.telemetry.logs import configure_logging, get_logger

_RUN = UUID(int=7)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _line(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (line,) = capsys.readouterr().err.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.req("J24", "J31")
def test_a_line_names_its_run_its_trace_and_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info", process="worker")
    tracer = TracerProvider().get_tracer("test")
    with (
        structlog.contextvars.bound_contextvars(jobRunId=str(_RUN)),
        tracer.start_as_current_span("detach run") as span,
    ):
        get_logger("pin.delivery").info("entry retry", snapshotId="s", attempts=2, errorCode="HTTP 503")
    line = _line(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "entry retry",
        "level": "info",
        "logger": "pin.delivery",
        "process": "worker",
        "jobRunId": str(_RUN),
        "trace_id": format(span.get_span_context().trace_id, "032x"),
        "snapshotId": "s",
        "attempts": 2,
        "errorCode": "HTTP 503",
    }


@pytest.mark.req("J31")
def test_outside_a_run_and_a_span_a_line_names_neither(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info", process="web")
    get_logger("web").info("started")
    line = _line(capsys)
    assert "jobRunId" not in line
    assert "trace_id" not in line


@pytest.mark.req("J31")
def test_the_libraries_lines_name_the_run_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info", process="worker")
    with structlog.contextvars.bound_contextvars(jobRunId=str(_RUN)):
        logging.getLogger("dramatiq").warning("a library %s", "speaks")
    line = _line(capsys)
    assert (line["event"], line["jobRunId"], line["process"]) == ("a library speaks", str(_RUN), "worker")


@pytest.mark.req("J24")
@pytest.mark.case("A22")
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_one_event_is_one_line_whatever_it_quotes(capsys: pytest.CaptureFixture[str], log_format: str) -> None:
    configure_logging(log_format=log_format, level="info", process="worker")
    get_logger("pin").info("entry retry", errorCode='x\r\n{"event": "forged"}\x1b[2J\ud800')
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "\x1b[2J" not in said


@pytest.mark.req("J26")
def test_the_current_span_travels_as_headers() -> None:
    assert traces.carrier() == {}
    assert traces.current_trace_id() is None
    with TracerProvider().get_tracer("test").start_as_current_span("outer") as span:
        headers = traces.carrier()
        assert traces.current_trace_id() == format(span.get_span_context().trace_id, "032x")
    with TracerProvider().get_tracer("test").start_as_current_span("inner", traces.context_of(headers)) as inner:
        assert inner.get_span_context().trace_id == span.get_span_context().trace_id
