"""What the pages say, over real HTTP; and that nothing in them is more than text (A22)."""

import re
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text

from pin.clock import utc_now
from pin.config.sections import OpsOptions, QueueOptions, SnapshotDetachRetryOptions
from pin.operations.verdict import Limits
from tests.console import seeds
from tests.console.browsing import OPERATOR, PASSWORD, Reading, Visitor
from tests.docs.reading import listed
from tests.serving import Keys, serving, settings_for
from web.app import create_app
from web.openapi import operations
from web.ops.now import BACKLOG_LIMIT

ROOT = Path(__file__).parents[2]
PAGES = [
    "/ops",
    "/ops/runs",
    "/ops/entries",
    "/ops/quarantine",
    "/ops/alerts",
    "/ops/subject",
    "/ops/audit",
    "/ops/system",
]
VENDORED = [ROOT / "web/ops/static/vendor", ROOT / "tests/console/vendor"]

EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"' onmouseover=alert(3) javascript:alert(4) {{7*191}}"
    " \x1b[2J\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\r2026-01-01 forged\nline \u202egnp.exe \u2028 \x85 \x9b31m"
)

pytestmark = pytest.mark.req("C5")


@pytest.fixture
def now(engine: Engine) -> datetime:
    """The moment; the tables that the job fills are empty before each test."""
    tables = ("outbox", "attempt", "run", "audit", "pause", "requeue", "quarantined_event", "alert")
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(f'news.snapshot_detach_{name}' for name in tables)}"))
    return utc_now()


@pytest.mark.parametrize("path", [*PAGES, "/ops/login", "/ops/nothing", "/ops/entries?q=nonsense", "/ops/live"])
def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(operator: Visitor, path: str) -> None:
    answer = operator.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Reading(answer.text)
    for tag, attributes in page.tags:
        assert tag != "style", path
        assert tag != "script" or attributes.get("src", "").startswith("/ops/static/"), path
        assert not {name for name in attributes if name.startswith("on") or name == "style"}, (path, attributes)
        for name in ("src", "href", "action", "hx-get"):
            assert attributes.get(name, "/").startswith(("/ops", "#", "/")), (path, attributes)
            assert not attributes.get(name, "/").startswith("//"), (path, attributes)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_says_where_one_is_and_offers_the_pause(operator: Visitor, path: str) -> None:
    page = Reading(operator.get(path).text)
    assert [link["href"] for link in page.having("a", **{"aria-current": "page"})] == [path]
    assert page.having("form", action="/ops/pause", method="post")
    assert "pin pause --reason WHY" in page.text
    assert page.having("a", href="#main")
    assert page.having("html", lang="en")


def test_each_field_has_a_label(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        seeds.entries(connection, now, 2, status="Quarantined", error="HTTP 503")
    for path in PAGES:
        page = Reading(operator.get(path).text)
        named = {label["for"] for label in page.having("label")}
        for tag, field in page.tags:
            if tag in {"input", "select", "progress"} and field.get("type") != "hidden":
                assert field.get("aria-label") or field.get("id") in named, (path, field)


@pytest.mark.case("A22")
def test_text_from_outside_is_inert_everywhere(operator: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        run_id = seeds.run(connection, now - timedelta(minutes=1))
        connection.execute(
            text("UPDATE news.snapshot_detach_run SET runner = :evil, result = 'Halted', halted_by = :evil"),
            {"evil": EVIL[:128]},
        )
        pending = seeds.entry(connection, now, error=EVIL)
        given_up = seeds.entry(connection, now, error=EVIL, status="Quarantined")
        for one in (pending, given_up):
            seeds.attempts(connection, one, [("Retried", EVIL, now), ("Quarantined", EVIL, now)])
        connection.execute(text("UPDATE news.snapshot_detach_attempt SET run_id = :run"), {"run": run_id})
        connection.execute(
            text("INSERT INTO news.snapshot_detach_pause (actor, reason, since) VALUES (:evil, :evil, :now)"),
            {"evil": EVIL[:128], "now": now},
        )
        connection.execute(
            text("""
                INSERT INTO news.snapshot_detach_audit (id, actor, action, reason, details, occurred_at)
                VALUES (:id, CAST(:evil AS text), 'requeue', CAST(:evil AS text),
                    jsonb_build_object('lastError', CAST(:evil AS text)), :now)
            """),
            {"id": uuid4(), "evil": EVIL[:128], "now": now},
        )
    plan = operator.change("/ops/quarantine/preview", what="selected", id=str(given_up)).headers["location"]
    paths = [*PAGES, f"/ops/entries/{pending}", f"/ops/entries/{given_up}", f"/ops/runs/{run_id}", plan, "/ops/live"]
    for path in paths:
        content = operator.get(path).text
        assert "alert(1)" in content or path == "/ops/system", path
        _assert_inert(path, content)


@pytest.mark.case("A22")
@pytest.mark.parametrize(
    "path", ["/ops/entries?q={}", "/ops/subject?id={}", "/ops/audit?actor={}", "/ops?notice={}", "/ops/login?next={}"]
)
def test_what_a_link_carries_is_inert(operator: Visitor, path: str) -> None:
    given = operator.client.get(path.partition("?")[0], params={path.partition("?")[2].removesuffix("={}"): EVIL})
    assert given.status_code in {200, 400}
    _assert_inert(path, given.text)


def _assert_inert(path: str, content: str) -> None:
    page = Reading(content)
    assert not page.having("img"), path
    assert not [src for tag, src in page.tags if tag == "script" and "src" not in src], path
    assert not [one for _, one in page.tags if {"onerror", "onmouseover"} & one.keys()], path
    assert "1337" not in page.text, path
    assert not [char for char in content if char != "\n" and not char.isprintable()], path
    assert "\x1b" not in content, path


def test_the_first_page_says_the_verdict_and_reddens_by_the_alerts_thresholds(
    viewer: Visitor, engine: Engine, now: datetime
) -> None:
    with engine.begin() as connection:
        seeds.run(connection, now - timedelta(minutes=2))
    calm = viewer.get("/ops").text
    assert "Delivering: nothing waits." in Reading(calm).text
    assert not Reading(calm).having("div", **{"class": "red"})
    with engine.begin() as connection:
        old = seeds.entry(connection, now, age=timedelta(minutes=11), error="HTTP 503")
        seeds.attempts(connection, old, [("Retried", "HTTP 503", now)])
        seeds.entry(connection, now, status="Quarantined", error="HTTP 404")
    troubled = Reading(viewer.get("/ops").text)
    assert len(troubled.having("div", **{"class": "red"})) == 2
    assert "Stuck on HTTP 503" in troubled.text
    assert "alert above 10 min" in troubled.text
    assert Reading(viewer.get("/ops/live").text).having("div", **{"class": "red"})


def test_the_thresholds_are_the_alert_rules() -> None:
    rules = (ROOT / "deploy/prometheus/rules.yaml").read_text(encoding="utf-8")
    assert f"max(news_snapshot_detach_pending) > {BACKLOG_LIMIT} and deriv" in rules
    retry = SnapshotDetachRetryOptions()
    limits = Limits(retry.polling_interval, retry.lock_ttl, QueueOptions().lease, retry.batch_size)
    assert f"max(news_snapshot_detach_unconsumed_seconds) > {limits.unconsumed.total_seconds():.0f}" in rules
    assert f"max(news_snapshot_detach_oldest_age_seconds) > {limits.age.total_seconds():.0f}" in rules
    assert f"last_success_timestamp_seconds) > {limits.no_run.total_seconds():.0f}" in rules


def test_a_growing_backlog_and_a_silent_runner_are_red(viewer: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        seeds.run(connection, now - timedelta(minutes=40))
        seeds.entries(connection, now, 101, age=timedelta(minutes=20))
    page = Reading(viewer.get("/ops").text)
    assert len(page.having("div", **{"class": "red"})) == 1  # old, and no more than it was 15 minutes ago
    assert len(page.having("dd", **{"class": "bad"})) == 2  # the tick and the success
    with engine.begin() as connection:
        seeds.run(connection, now - timedelta(minutes=1))
        seeds.entries(connection, now, 3, age=timedelta(seconds=20))
    page = Reading(viewer.get("/ops").text)
    assert len(page.having("div", **{"class": "red"})) == 2
    assert not page.having("dd", **{"class": "bad"})


def test_the_charts_are_tables_that_count_the_backlog_and_the_lag(
    viewer: Visitor, engine: Engine, now: datetime
) -> None:
    with engine.begin() as connection:
        seeds.entries(connection, now, 3, age=timedelta(minutes=30))
        for minutes, age in ((10, 20), (20, 700)):
            done = now - timedelta(minutes=minutes)
            one = seeds.entry(
                connection, now, status="Done", created=done - timedelta(seconds=age), updated=done, error=None
            )
            seeds.attempts(connection, one, [("Succeeded", None, done)])
    for window, steps in (("1h", 60), ("24h", 96)):
        page = viewer.get(f"/ops?window={window}").text
        head, body = page.split('data-chart="lines"')[1].split('data-chart="bars"')
        values = [int(cell["data-value"]) for cell in Reading(head).having("td")]
        assert (len(values[0::2]), values[-2]) == (steps, 3)
        assert sum(values[1::2]) == 2
        assert max(values[0::2]) == 4 if window == "1h" else True
        assert sum(int(cell["data-value"]) for cell in Reading(body).having("td")) == 2
        assert "50.0% of 2 within 10 min (objective 99%)" in Reading(page).text
    assert viewer.get("/ops?window=1%27").status_code == 200


def test_skipped_ticks_are_faint_and_runs_are_paged(viewer: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        for minutes in range(120):
            result = "Skipped" if minutes % 2 else "Completed"
            seeds.run(connection, now - timedelta(minutes=minutes), result=result, claimed=minutes % 3)
    first = Reading(viewer.get("/ops/runs").text)
    assert len(first.having("tr", **{"class": "faint"})) == 25
    assert _walk(viewer, "/ops/runs") == 120
    assert _walk(viewer, "/ops/runs?skipped=no") == 60
    assert viewer.get("/ops/runs?after=nonsense").status_code == 400


def test_entries_are_searched_by_the_url_and_paged_by_key(viewer: Visitor, engine: Engine, now: datetime) -> None:
    with engine.begin() as connection:
        seeds.entries(connection, now, 120, error="HTTP 503")
        one = seeds.entry(connection, now, status="Quarantined", error="TIMEOUT")
    assert _walk(viewer, "/ops/entries") == 121
    page = Reading(viewer.get("/ops/entries?q=state:Quarantined+error:time").text)
    assert page.having("a", href=f"/ops/entries/{one}")
    assert "Pending 0" in page.text
    assert "Quarantined 1" in page.text
    assert "pin entries list 'state:Quarantined error:time'" in page.text
    found = viewer.get(f"/ops/entries?q={one}")
    assert found.status_code == 200
    refused = viewer.get("/ops/entries?q=color:red")
    assert refused.status_code == 400
    assert "color:red" in Reading(refused.text).having("input", name="q")[0]["value"]
    assert "no such token" in Reading(refused.text).text


def test_an_entrys_page_tells_its_life_and_the_lost_outcome(viewer: Visitor, engine: Engine, now: datetime) -> None:
    due = now + timedelta(minutes=3)
    with engine.begin() as connection:
        one = seeds.entry(connection, now, attempts=3, version=6, due=due, outcome_due=False, error="HTTP 503")
        seeds.attempts(connection, one, [("Retried", "TIMEOUT", now - timedelta(seconds=40))])
    said = Reading(viewer.get(f"/ops/entries/{one}").text).text
    for words in ("attempt 1 failed with TIMEOUT in 37 ms", "worker-1:4711", "0af7651916cd43dd8448eb211c80319c"):
        assert words in said
    assert "attempt 2: outcome unknown; the worker died before recording it" in said
    assert f"pin entries show {one}" in said
    assert viewer.get(f"/ops/entries/{uuid4()}").status_code == 404
    assert viewer.get("/ops/entries/xyz").status_code == 400


def test_an_id_leads_to_the_entry_or_to_what_both_sides_say(viewer: Visitor, engine: Engine, now: datetime) -> None:
    snapshot, post = uuid4(), uuid4()
    with engine.begin() as connection:
        one = seeds.entry(connection, now, snapshot_id=snapshot, post_id=post)
    assert viewer.get(f"/ops/subject?id={one}").headers["location"] == f"/ops/entries/{one}"
    for id_ in (snapshot, post):
        page = Reading(viewer.get(f"/ops/subject?id={id_}").text)
        assert page.having("a", href=f"/ops/entries/{one}")
        assert "not answer" in page.text  # nothing listens where these settings look for selections
    assert viewer.get("/ops/subject?id=xyz").status_code == 400


@pytest.mark.parametrize(
    ("path", "status"), [("/ops/nothing", 404), ("/ops/runs/xyz", 400), (f"/ops/runs/{UUID(int=7)}", 404)]
)
def test_errors_of_the_console_are_pages_and_those_of_the_api_problems(
    operator: Visitor, path: str, status: int
) -> None:
    answer = operator.get(path)
    assert answer.status_code == status
    assert str(status) in Reading(answer.text).text
    assert operator.get("/api/v1/nothing").headers["content-type"] == "application/problem+json"
    refused = operator.client.put("/ops/audit", headers={"Origin": operator.base_url})
    assert (refused.status_code, refused.headers["content-type"]) == (405, "text/html; charset=utf-8")


def test_files_of_the_console_are_kept_by_their_content(stranger: Visitor) -> None:
    page = Reading(stranger.get("/ops/login").text)
    (sheet,) = [link["href"] for link in page.having("link", rel="stylesheet")]
    answer = stranger.get(sheet)
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    stale = stranger.get(sheet.replace(sheet.split("/")[3], "0" * 16))
    assert (stale.status_code, stale.headers["cache-control"]) == (200, "no-cache")
    for name in ("SHA256SUMS", "htmx.LICENSE", "..%2Fpage.py", "nothing.css"):
        assert stranger.get(f"/ops/static/x/{name}").status_code == 404


def test_the_system_page_masks_secrets(viewer: Visitor, database: str) -> None:
    said = viewer.get("/ops/system").text
    password = urlsplit(database).password
    assert password
    assert password not in said
    assert "PIN_DATABASE_URL" in said
    assert "scrypt" not in said
    assert "news.snapshot_detach_outbox" in said


def test_a_lost_database_is_told_on_a_page(keys: Keys, operators_file: Path) -> None:
    settings = settings_for(
        keys,
        "postgresql://nobody@127.0.0.1:9/nothing",
        contexts=("selections", "ops"),
        ops=OpsOptions(operators_file=operators_file),
    )
    with serving(create_app(settings)) as url, Visitor(url) as visitor:
        visitor.send("/ops/login", {"name": OPERATOR, "password": PASSWORD})
        for path in ("/ops", "/ops/live", "/ops/entries", "/ops/system"):
            answer = visitor.get(path)
            assert answer.status_code == 503, path
            assert "The database cannot be reached." in Reading(answer.text).text
            assert "127.0.0.1:9" not in answer.text


def test_docs_list_the_pages_that_there_are(database: str, keys: Keys, operators_file: Path) -> None:
    settings = settings_for(keys, database, contexts=("ops",), ops=OpsOptions(operators_file=operators_file))
    served = [path for path, method, _ in operations(create_app(settings).routes) if method == "get"]
    pages = {re.sub(r"{\w+}", "{id}", path) for path in served if path.startswith("/ops")}
    apart = {path for path in pages if path.endswith("/live") or "/static/" in path or path == "/ops/login"}
    assert {name for name in listed("console.md") if name.startswith("/ops")} == pages - apart


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_what_is_vendored_is_what_was_published(folder: Path) -> None:
    listed = {line.split()[1]: line.split()[0] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    files = {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.name != "SHA256SUMS"}
    assert files == listed
    for name in files:
        if name.endswith((".js", ".css")):
            assert f"{name.split('-')[0]}.LICENSE" in files


def _walk(visitor: Visitor, path: str) -> int:
    """How many rows the pages have from this one on, by their links to the next one."""
    rows = 0
    while True:
        page = Reading(visitor.get(path).text)
        rows += len(page.having("tr")) - 1
        further = page.having("a", rel="next")
        if not further:
            return rows
        path = further[0]["href"]
