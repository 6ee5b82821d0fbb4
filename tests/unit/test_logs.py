import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider

from pin.telemetry import traces
from pin.telemetry.logs import Line, configure_logging, get_logger, write_lines

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
    (line,) = _lines(capsys)
    return line


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What was written since."""
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
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


@pytest.mark.req("J24", "J31")
def test_lines_written_together_are_the_lines_written_singly(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info", process="worker")
    facts: list[dict[str, Any]] = [
        {"snapshotId": "s1", "attempts": 1},
        {"snapshotId": "s2", "errorCode": "Authorization: Bearer abcdefgh"},
        {"snapshotId": "s3", "errorCode": '\ud800"\r\n{"event": "forged"}'},
    ]
    with (
        structlog.contextvars.bound_contextvars(jobRunId=str(_RUN)),
        TracerProvider().get_tracer("test").start_as_current_span("detach run"),
    ):
        for each in facts:
            get_logger("pin.job").warning("entry retry", **each)
        singly = _lines(capsys)
        write_lines("pin.job", [Line("warning", "entry retry", each) for each in facts])
        together = _lines(capsys)
    assert len(together) == len(singly) == 3
    for line in together + singly:
        assert line.pop("timestamp").endswith("Z")
    assert sorted(together, key=lambda line: str(line["snapshotId"])) == singly
    assert "abcdefgh" not in str(together)


@pytest.mark.req("J24")
def test_lines_written_together_heed_format_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [Line("info", "entry detached", {"snapshotId": "s1"}), Line("warning", "entry retry", {"snapshotId": "s2"})]
    configure_logging(log_format="json", level="warning", process="worker")
    write_lines("pin.job", lines)
    assert [line["event"] for line in _lines(capsys)] == ["entry retry"]
    configure_logging(log_format="console", level="info", process="worker")
    write_lines("pin.job", lines)
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.req("J26", "J24")
def test_where_nobody_collects_a_trace_is_its_ids() -> None:
    script = """
from pin.telemetry import traces
traces.configure_tracing("pin-test")
assert not traces.collecting()
with traces.span("run") as run:
    trace, headers = traces.current_trace_id(), traces.carrier()
    with traces.span("attempt") as attempt:
        attempt.set_attribute("verdict", "Detached")
        assert not attempt.is_recording()
        assert (traces.current_trace_id(), traces.carrier()) == (trace, headers)
assert traces.current_trace_id() is None
with traces.span("served", context=traces.context_of(headers)):
    assert (traces.current_trace_id(), traces.carrier()) == (trace, headers)
    headers["traceparent"] = "changed"
    assert traces.carrier() != headers
with traces.span("another"):
    assert traces.current_trace_id() not in (None, trace)
print(trace)
"""
    trace = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    assert len(trace) == 32
