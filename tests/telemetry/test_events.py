"""The six events of the job with their fields (J24), and what must never be read in a log, an entry or a span."""

import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr
from sqlalchemy import Engine

from pin.clock import new_id
from pin.config.sections import AlertOptions, AuthOptions, SnapshotDetachRetryOptions
from pin.job import tick as retry_job
from pin.telemetry import traces
from pin.telemetry.logs import configure_logging, get_logger
from pin.telemetry.redaction import redacted
from tests.fake_selections import Call, FakeSelections, Script, detached, problem, reply
from tests.job.conftest import MakeJobSettings
from tests.job.scene import USER, change, history, rows, stage, working
from tests.serving import Keys
from tests.telemetry.test_alerts import MakeJob
from tests.waiting import eventually

UNHURRIED = SnapshotDetachRetryOptions(
    batch_size=10, max_run_duration=timedelta(seconds=20), lock_ttl=timedelta(seconds=30)
)
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJuZXdzIn0.c2lnbmF0dXJl"
PASSWORD = "hunter2-of-the-database"


class Lines:
    """The log so far, line by line."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.read() if line["event"] == name]


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configure_logging(log_format="json", level="info", process="test")
    found = Lines()
    [handler] = [each for each in root.handlers if isinstance(each, logging.StreamHandler)]
    handler.setStream(found.stream)
    yield found
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Every span that this process ends from now on."""
    traces.configure_tracing("pin-test")
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.mark.req("J24", "J31")
def test_the_six_events_have_their_fields(
    engine: Engine, job_settings: MakeJobSettings, make_retry_job: MakeJob, lines: Lines, spans: InMemorySpanExporter
) -> None:
    good, busy, unknown = new_id(), new_id(), new_id()

    def answer(call: Call) -> Script:
        if str(busy) in call.path:
            return reply(503, b"down")
        return problem(404, "SELECTIONS_SNAPSHOT_NOT_FOUND") if str(unknown) in call.path else detached(call)

    with FakeSelections(answer) as fake:
        settings = job_settings(fake.url, retry=UNHURRIED)
        stage(engine, [good, busy, unknown])
        with working(settings):
            summary = retry_job.run(make_retry_job(settings), Event())
            eventually(lambda: lines.events("SnapshotDetachQuarantinedEvent"))
    found = {name: lines.events(name) for name in ("job started", "batch claimed", "job completed")}
    [started], [claimed], [completed] = found.values()
    run = str(summary.run_id)
    assert started["jobRunId"] == run
    assert claimed["rows"] == 3
    assert {name: completed[name] for name in ("succeeded", "retried", "quarantined")} == {
        "succeeded": 1,
        "retried": 1,
        "quarantined": 1,
    }
    assert 0 < completed["durationMs"] < 60_000
    [entry] = lines.events("entry detached")
    assert (entry["snapshotId"], entry["attempts"]) == (str(good), 1)
    [entry] = lines.events("entry retry")
    assert (entry["snapshotId"], entry["attempts"], entry["errorCode"]) == (str(busy), 1, "HTTP 503")
    [entry] = lines.events("entry quarantined")
    assert (entry["snapshotId"], entry["reason"]) == (str(unknown), "BlockReplaced")
    of_the_run = [line for line in lines.read() if str(line["logger"]).startswith("pin.job.")]
    assert len(of_the_run) == 6
    assert {line["jobRunId"] for line in of_the_run} == {run}
    assert len({line["trace_id"] for line in of_the_run}) == 1, "the run's trace goes on in the worker"
    assert {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans() if span.context} >= {
        line["trace_id"] for line in of_the_run
    }


def _echo(call: Call) -> Script:
    """A server that repeats what it was sent, in its body and in its headers."""
    said = call.header("authorization") or ""
    return reply(500, f'{{"code": "{said}"}}'.encode(), headers=[("X-Echo", said), ("Retry-After", said)])


@pytest.mark.req("J24", "J14", "J26")
def test_secrets_come_through_no_failing_path(
    engine: Engine,
    job_settings: MakeJobSettings,
    make_retry_job: MakeJob,
    lines: Lines,
    spans: InMemorySpanExporter,
    keys: Keys,
    tmp_path: Any,
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with FakeSelections(_echo) as fake:
        auth = AuthOptions(public_keys=(keys.public,), m2m_token_file=token)
        alerts = AlertOptions(webhook_url=SecretStr(f"http://hook:{PASSWORD}@127.0.0.1:9/"))
        settings = job_settings(fake.url, auth=auth, alerts=alerts, retry=UNHURRIED)
        [entry] = stage(engine, [new_id()])
        job = make_retry_job(settings)
        with working(settings):
            retry_job.run(job, Event())  # the target echoes the token
            eventually(lambda: history(engine, entry))
            # The database refuses an outcome, and quotes the row that it refuses, the user's id in it.
            change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 11, next_attempt_at = created_at")
            change(
                engine,
                "ALTER TABLE news.snapshot_detach_outbox ADD CONSTRAINT ck_refuse"
                " CHECK (status <> 'Quarantined') NOT VALID",
            )
            retry_job.run(job, Event())
            eventually(lambda: lines.events("outcome not recorded"))
            change(engine, "ALTER TABLE news.snapshot_detach_outbox DROP CONSTRAINT ck_refuse")
            change(engine, "UPDATE news.snapshot_detach_outbox SET attempts = 13, next_attempt_at = created_at")
            retry_job.run(job, Event())  # quarantined; the sink's URL has a password
            eventually(lambda: lines.events("alert not sent"))
        assert TOKEN in str(fake.calls[0].headers), "the token was on the wire"
        away = settings.model_copy(update={"database_url": f"postgresql://pin:{PASSWORD}@127.0.0.1:9/pin"})
        retry_job.run(make_retry_job(away), Event())
        assert lines.events("run failed")
    seen = [
        lines.text,
        *(str(row.last_error) for row in rows(engine)),
        *(str(attempt) for attempt in history(engine, entry)),
        *(span.to_json() for span in spans.get_finished_spans()),
    ]
    assert len(spans.get_finished_spans()) >= 5
    for secret in (TOKEN, TOKEN.split(".")[1], PASSWORD, str(USER)):
        assert not [text for text in seen if secret in text], f"{secret} was let through"


@pytest.mark.req("J24", "J26")
def test_a_span_names_an_error_by_its_class_alone(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match=PASSWORD), traces.span("work"):
        raise ValueError(PASSWORD)
    [span] = spans.get_finished_spans()
    assert dict(span.attributes or {}) == {"error.type": "ValueError"}
    assert (span.status.is_ok, span.events, PASSWORD in span.to_json()) == (False, (), False)


@pytest.mark.req("J24")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Authorization: Bearer {TOKEN}", "Authorization: Bearer ***"),
        (f"token={TOKEN}, x", "token=***, x"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
        ("postgresql://pin:s3:c/r@h@db:5432/pin is away", "postgresql://pin:***@db:5432/pin is away"),
        ("https://hook:pw@host/path?x=1", "https://hook:***@host/path?x=1"),
        ("host=db password='a b' user=pin", "host=db password=*** user=pin"),
        ("no\nDETAIL:  Failing row contains (1, 2).\nCONTEXT: x", "no\nDETAIL:  ***\nCONTEXT: x"),
        (
            "[SQL: SELECT 1]\n[parameters: {'user': '1', 'x': [2]}]\n(Background",
            "[SQL: SELECT 1]\n[parameters: ***]\n(Background",
        ),
        ("nothing to hide: HTTP 503, a@b, 10:30", "nothing to hide: HTTP 503, a@b, 10:30"),
    ],
)
def test_what_is_redacted(text: str, left: str) -> None:
    assert redacted(text) == left


@pytest.mark.req("J24")
def test_a_librarys_line_and_a_traceback_are_redacted(lines: Lines) -> None:
    logging.getLogger("dramatiq").error("Failed with header Bearer %s", TOKEN)
    try:
        raise RuntimeError(f"postgresql://pin:{PASSWORD}@db/pin")  # noqa: TRY301
    except RuntimeError:
        get_logger("pin").exception("run failed", target=f"http://u:{PASSWORD}@h")
    [first, second] = lines.read()
    assert first["event"] == "Failed with header Bearer ***"
    assert (second["target"], "RuntimeError" in second["exception"]) == ("http://u:***@h", True)
    assert TOKEN not in lines.text
    assert PASSWORD not in lines.text
