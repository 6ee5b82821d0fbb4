"""What the detach document says beside its acceptance criteria."""

import re
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from pin.rules.contract import DETACH_PATH, Reason
from tests.selections.api import Api, events, refusal, row
from tests.serving import bearer
from tests.waiting import eventually

NIL = UUID(int=0)


def _post(api: Api, snapshot_id: object, body: Any, headers: dict[str, str]) -> httpx.Response:
    return api.client.post(DETACH_PATH.format(id=snapshot_id), json=body, headers=headers)


@pytest.mark.req("G10", "D2", "D10", "G2")
def test_the_checks_come_in_the_order_401_403_400_404(api: Api, engine: Engine) -> None:
    known, other = api.snapshot(), bearer(api.keys.token(client="other"))
    bad_body, good_body = {"reason": "?"}, {"reason": "PostDeleted", "requestedByUserId": str(uuid4())}
    tried = {uuid4(), known}
    for snapshot_id in ("xyz", *tried):
        for body in (bad_body, good_body):
            nobody = _post(api, snapshot_id, body, {})
            assert refusal(nobody) == (401, "UNAUTHORIZED")
            assert nobody.headers["www-authenticate"].startswith("Bearer")
            assert refusal(_post(api, snapshot_id, body, bearer("x.y.z"))) == (401, "UNAUTHORIZED")
            assert refusal(_post(api, snapshot_id, body, other)) == (403, "FORBIDDEN")
    for snapshot_id in ("xyz", *tried):
        assert refusal(_post(api, snapshot_id, bad_body, api.news)) == (400, "VALIDATION_ERROR")
    assert refusal(_post(api, "xyz", good_body, api.news)) == (400, "VALIDATION_ERROR")
    (unknown,) = tried - {known}
    assert refusal(_post(api, unknown, good_body, api.news)) == (404, "SELECTIONS_SNAPSHOT_NOT_FOUND")
    assert row(engine, known)["status"] == "Active"
    assert events(engine, known) == []
    with engine.connect() as connection:
        left = connection.execute(text("SELECT id FROM selections.snapshot WHERE status = 'Tombstone'")).scalars()
        assert set(left) & tried == {unknown}, "a request that is refused otherwise leaves no tombstone"


@pytest.mark.req("D3", "D10")
def test_empty_ids_and_incomplete_bodies_are_refused(api: Api, engine: Engine) -> None:
    snapshot_id, user = api.snapshot(), str(uuid4())
    bodies: list[tuple[Any, str]] = [
        ({"reason": "BlockReplaced", "requestedByUserId": str(NIL)}, "$.requestedByUserId"),
        ({"reason": "BlockReplaced", "requestedByUserId": "xyz"}, "$.requestedByUserId"),
        ({"reason": "BlockReplaced", "requestedByUserId": None}, "$.requestedByUserId"),
        ({"reason": "blockreplaced", "requestedByUserId": user}, "$.reason"),
        ({"reason": "", "requestedByUserId": user}, "$.reason"),
        ({"reason": 1, "requestedByUserId": user}, "$.reason"),
        ({"reason": None, "requestedByUserId": user}, "$.reason"),
        ({"reason": "BlockReplaced"}, "$"),
        ({"requestedByUserId": user}, "$"),
        ([], "$"),
        (None, "$"),
    ]
    for body, field in bodies:
        response = _post(api, snapshot_id, body, api.news)
        assert refusal(response) == (400, "VALIDATION_ERROR"), body
        assert response.json()["title"] == "Некорректный запрос"
        assert response.json()["errors"][0]["field"] == field, body
    assert refusal(api.detach(NIL)) == (400, "VALIDATION_ERROR")
    assert row(engine, snapshot_id)["status"] == "Active"


@pytest.mark.req("D11")
@pytest.mark.req("J24")
def test_each_detach_is_logged_and_says_whether_it_was_a_no_op(api: Api) -> None:
    snapshot_id, first, second = api.snapshot(), uuid4(), uuid4()
    with capture_logs() as logs:
        api.detach(snapshot_id, "BlockReplaced", first)
        api.detach(snapshot_id, "PostDeleted", second)
    fields = ("snapshotId", "reason", "requestedByUserId", "noop")
    found = [tuple(entry[name] for name in fields) for entry in logs if entry["event"] == "snapshot detached"]
    assert found == [
        (str(snapshot_id), "BlockReplaced", str(first), False),
        (str(snapshot_id), "PostDeleted", str(second), True),
    ]


@pytest.mark.req("D12")
def test_each_detach_is_counted_by_reason_and_idempotent_hit(api: Api) -> None:
    def counted(reason: str, hit: str) -> float:
        content = api.client.get("/metrics").text
        pattern = rf'selections_snapshot_detached_total\{{idempotent_hit="{hit}",reason="{reason}"\}} (\S+)'
        match = re.search(pattern, content)
        return float(match[1]) if match else 0.0

    snapshot_id = api.snapshot()
    before = counted("BlockReplaced", "false"), counted("PostDeleted", "true")
    api.detach(snapshot_id, "BlockReplaced")
    api.detach(snapshot_id, "PostDeleted")
    api.detach(snapshot_id, "PostDeleted")
    after = counted("BlockReplaced", "false"), counted("PostDeleted", "true")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 2)


@pytest.mark.req("D12")
def test_the_trace_continues_through_traceparent(api: Api) -> None:
    snapshot_id = api.snapshot()
    provider, exporter = trace.get_tracer_provider(), InMemorySpanExporter()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    api.detach(snapshot_id, headers=api.news | {"traceparent": f"00-{trace_id}-{parent_id}-01"})
    (span,) = eventually(exporter.get_finished_spans)  # a span ends after its answer is sent
    assert span.name == "POST /api/v1/internal/snapshots/{snapshot_id}/detach"
    assert span.context is not None
    assert span.parent is not None
    assert (format(span.context.trace_id, "032x"), format(span.parent.span_id, "016x")) == (trace_id, parent_id)
    exporter.clear()
    api.detach(snapshot_id, headers=api.news | {"traceparent": "00-zz"})
    (span,) = eventually(exporter.get_finished_spans)  # a span ends after its answer is sent
    assert span.parent is None, "a malformed traceparent starts a trace of its own"


@pytest.mark.req("D13")
def test_neither_tenant_nor_record_is_checked_for_the_trusted_caller(api: Api) -> None:
    response = api.detach(api.snapshot(), "PostDeleted", uuid4(), headers=api.news | {"Idempotency-Key": "any"})
    assert response.status_code == 200


@pytest.mark.req("D14", "J9")
def test_every_reason_of_the_contract_is_one_the_database_admits(api: Api, engine: Engine) -> None:
    for reason in Reason:
        snapshot_id = api.snapshot()
        assert api.detach(snapshot_id, reason).json()["detachReason"] == reason
        assert row(engine, snapshot_id)["detach_reason"] == reason


@pytest.mark.req("G2", "D3")
@pytest.mark.case("A21")
def test_one_snapshot_whatever_the_spelling_of_its_id(api: Api, engine: Engine) -> None:
    snapshot_id = api.snapshot()
    text_ = str(snapshot_id)
    arabic = text_.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))
    refused = [
        f"{{{text_}}}",
        f"urn:uuid:{text_}",
        snapshot_id.hex,
        arabic,
        "xyz",
        str(NIL),
        text_[:-1],
        f"{text_}0",
        f"{text_}%0A",
        f"%20{text_}",
        "%00",
        "-",
    ]
    for spelling in refused:
        assert refusal(api.detach(spelling)) == (400, "VALIDATION_ERROR"), spelling
        assert refusal(api.get(spelling)) == (400, "VALIDATION_ERROR"), spelling
    assert row(engine, snapshot_id)["status"] == "Active"
    upper = api.detach(text_.upper())
    assert (upper.status_code, upper.json()["snapshotId"]) == (200, text_)
    assert api.detach(text_).json() == upper.json()
    statement = text("SELECT count(*) FROM selections.snapshot WHERE requested_by_user_id = :owner OR id = :nil")
    with engine.connect() as connection:
        assert connection.execute(statement, {"owner": api.owner, "nil": NIL}).scalar() == 1
