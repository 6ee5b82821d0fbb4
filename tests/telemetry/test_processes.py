"""The three processes as they run: what they count together, what they say of their health, one trace through all."""

import subprocess
from collections.abc import Callable, Iterator
from uuid import uuid4

import httpx
import pytest

from db.connect import make_engine
from pin.clock import utc_now
from tests.job.scene import active_snapshots, query, rows, stage
from tests.serving import Keys, bearer
from tests.telemetry.fleet import Fleet, fleet_on
from tests.tools import debian_tool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)

SERVER, CLIENT = 2, 3


@pytest.fixture(scope="module")
def fleet(_clone: Callable[[], str], keys: Keys) -> Iterator[Fleet]:
    database = _clone()
    engine = make_engine(database)
    with fleet_on(database, engine, keys) as running:
        yield running
    engine.dispose()


def deliver(fleet: Fleet, count: int) -> None:
    """So many entries, staged and Done."""
    stage(fleet.engine, active_snapshots(fleet.engine, count))
    eventually(lambda: {row.status for row in rows(fleet.engine)} == {"Done"}, within=40, every=0.1)


@pytest.mark.req("J25", "C6")
def test_the_processes_of_one_worker_are_summed(fleet: Fleet) -> None:
    def workers() -> int:
        return len(query(fleet.engine, "SELECT DISTINCT worker FROM news.snapshot_detach_attempt"))

    delivered = 0
    for _ in range(5):
        deliver(fleet, 10)
        delivered += 10
        if workers() == 2:
            break
    assert workers() == 2
    eventually(lambda: fleet.samples("worker")["news_snapshot_detach_succeeded_total"] == delivered)
    found = fleet.samples("worker")
    assert found["news_snapshot_detach_lag_seconds_count"] == delivered
    assert found['selections_client_request_duration_seconds_count{operation="detach",outcome="2xx"}'] == delivered
    assert found["news_snapshot_detach_failed_total"] == 0
    folders = list(fleet.temporary.glob("pin-metrics-*"))
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700]


@pytest.mark.req("J25", "G20")
def test_every_replica_gives_the_same_gauges(fleet: Fleet) -> None:
    deliver(fleet, 1)
    names = ("pending", "oldest_age_seconds", "quarantined_entries", "last_success_timestamp_seconds", "paused")
    wanted = [f"news_snapshot_detach_{name}" for name in names]

    def same() -> bool:
        web, scheduler = fleet.samples("web"), fleet.samples("scheduler")
        return [web[name] for name in wanted] == [scheduler[name] for name in wanted]

    assert eventually(same, within=20)  # a run may end between the two scrapes
    found = fleet.samples("scheduler")
    assert 0 <= utc_now().timestamp() - found["news_snapshot_detach_last_success_timestamp_seconds"] < 30
    assert found["news_snapshot_detach_lock_held"] in {0, 1}
    assert [found[f'news_snapshot_detach_batches{{state="{state}"}}'] for state in ("expired", "rejected")] == [0, 0]


@pytest.mark.req("J25", "J27")
def test_series_are_there_before_their_first_event(fleet: Fleet) -> None:
    found = fleet.samples("scheduler")
    for result in ("Completed", "HeldBack", "Halted", "Failed", "Skipped", "LockLost"):
        assert f'news_snapshot_detach_runs_total{{result="{result}"}}' in found
    found = fleet.samples("worker")
    assert found['selections_client_request_duration_seconds_count{operation="detach",outcome="5xx"}'] == 0
    assert found['news_snapshot_detach_alerts_total{result="failed",sink="webhook"}'] == 0
    found = fleet.samples("web")
    assert 'selections_snapshot_detached_total{idempotent_hit="true",reason="PostDeleted"}' in found


@pytest.mark.req("J25", "D12")
def test_requests_are_timed_by_template_and_never_by_path(fleet: Fleet) -> None:
    fleet.get("web", f"/api/v1/posts/{uuid4()}")
    fleet.get("web", f"/nowhere/{uuid4()}")
    httpx.request("BREW", fleet.urls["web"] + "/health/live", trust_env=False)
    found = [name for name in fleet.samples("web") if name.startswith("http_server_request_duration_seconds_count")]
    assert (
        'http_server_request_duration_seconds_count{method="GET",route="/api/v1/posts/{post_id}",status="4xx"}' in found
    )
    assert not [name for name in found if "nowhere" in name or "BREW" in name]


@pytest.mark.req("J25")
@pytest.mark.parametrize("role", ["web", "worker", "scheduler"])
def test_promtool_finds_nothing_to_say_about_a_scrape(fleet: Fleet, role: str) -> None:
    tool = debian_tool("promtool", "prometheus")
    checked = subprocess.run(
        [tool, "check", "metrics"], input=fleet.scrape(role), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.req("C6", "J32")
def test_each_process_is_alive_and_ready(fleet: Fleet) -> None:
    for role in fleet.urls:
        for probe in ("live", "ready"):
            answer = fleet.get(role, f"/health/{probe}")
            assert (role, probe, answer.status_code, answer.json()) == (role, probe, 200, {"status": "ok"})
        assert fleet.get(role, "/nothing").status_code == 404


@pytest.mark.req("J26", "D12", "J31")
def test_one_trace_holds_run_attempt_call_and_server(fleet: Fleet) -> None:
    [snapshot] = active_snapshots(fleet.engine)
    stage(fleet.engine, [snapshot])

    def of_the_snapshot() -> list[str]:
        attempts = fleet.spans.spans(lambda s: s.attributes.get("snapshotId") == str(snapshot))
        return [span.trace_id for span in attempts]

    [trace] = eventually(of_the_snapshot, within=40, every=0.1)
    names = {"snapshot detach run", "detach attempt"}

    def whole() -> bool:
        found = fleet.spans.spans(lambda s: s.trace_id == trace)
        return names <= {s.name for s in found} and {SERVER, CLIENT} <= {s.kind for s in found}

    eventually(whole, within=20, every=0.1)
    spans = fleet.spans.spans(lambda s: s.trace_id == trace)
    by_id = {span.span_id: span for span in spans}
    server = next(s for s in spans if s.kind == SERVER)
    path = [server]
    while path[-1].parent_id in by_id:
        path.append(by_id[path[-1].parent_id])
    assert [(span.service, span.name) for span in path] == [
        ("pin-web", "POST /api/v1/internal/snapshots/{snapshot_id}/detach"),
        ("pin-worker", "POST /api/v1/internal/snapshots/{id}/detach"),
        ("pin-worker", "detach attempt"),
        ("pin-scheduler", "snapshot detach run"),
    ]
    assert path[2].attributes.keys() >= {"snapshotId", "attempts"}
    run = path[3].attributes["jobRunId"]
    for span in path[2:]:
        who = {name: span.attributes[name] for name in ("jobRunId", "correlationId", "actor")}
        assert who == {"jobRunId": run, "correlationId": run, "actor": "system"}
    [attempt] = query(
        fleet.engine, "SELECT run_id, trace_id FROM news.snapshot_detach_attempt WHERE trace_id = :trace", trace=trace
    )
    assert str(attempt.run_id) == run
    assert f'"trace_id":"{trace}"' in fleet.said("scheduler")
    assert f'"trace_id":"{trace}"' in fleet.said("worker")


@pytest.mark.req("J26", "D12")
def test_the_synchronous_path_is_in_the_users_trace(fleet: Fleet) -> None:
    token = fleet.keys.token(user_id=uuid4(), tenant_id=uuid4())
    trace = uuid4().hex
    with httpx.Client(
        base_url=f"{fleet.urls['web']}/api/v1", headers=bearer(token), trust_env=False, timeout=20
    ) as http:
        selection = http.post("/selections", json={"title": "t", "items": ["a"]}).json()["id"]
        blocks = [{"kind": "SelectionEmbed", "selectionId": selection}]
        post = http.post("/posts", json={"title": "News", "blocks": blocks}).json()["id"]
        http.post(f"/posts/{post}/publish")
        answer = http.delete(f"/posts/{post}", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert answer.status_code == 204

    def names() -> set[str]:
        return {span.name for span in fleet.spans.spans(lambda s: s.trace_id == trace)}

    eventually(
        lambda: (
            names()
            >= {
                "DELETE /api/v1/posts/{post_id}",
                "detach attempt",
                "POST /api/v1/internal/snapshots/{id}/detach",
                "POST /api/v1/internal/snapshots/{snapshot_id}/detach",
            }
        ),
        within=20,
        every=0.1,
    )
