"""An outage as the person on call sees it: the real processes, a real browser, nothing faked."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page
from sqlalchemy import Engine, text

from db.connect import make_engine
from pin.access.operators import Role, make_operator
from pin.access.signing import mint
from pin.clock import new_id, utc_now
from pin.config.sections import AuthOptions
from pin.demo.api import Api
from pin.demo.story import Story, side_by_side
from pin.stack.journal import Journal
from pin.stack.local import KEY_ID, local_keys
from pin.stack.plan import StackOptions
from pin.stack.ports import free_ports
from pin.stack.supervisor import Stack
from tests.console import chromium as browsers
from tests.console.browsing import OPERATOR, PASSWORD
from tests.console.chromium import Watched, keep_image
from tests.waiting import eventually

chromium = browsers.chromium

TIMINGS = {
    "PIN_RETRY__POLLING_INTERVAL": "1s",
    "PIN_RETRY__BATCH_SIZE": "1",
    "PIN_RETRY__MAX_RUN_DURATION": "5s",
    "PIN_RETRY__LOCK_TTL": "8s",
    "PIN_RETRY__MAX_ATTEMPTS": "4",
    "PIN_RETRY__BACKOFF_BASE": "2s",
    "PIN_RETRY__BACKOFF_CAP": "3s",
    "PIN_RETRY__DETACH_CALL_TIMEOUT": "500ms",
    "PIN_QUEUE__LEASE": "1500ms",
    "PIN_QUEUE__POLL": "300ms",
    "PIN_QUEUE__MAX_BATCHES_IN_FLIGHT": "1",
    "PIN_WORKER__THREADS": "1",
    "PIN_WORKER__CONCURRENCY": "2",
    "PIN_WORKER__TIME_LIMIT": "1s",
    "PIN_WORKER__SHUTDOWN_TIMEOUT": "3s",
    "PIN_ALERTS__TIMEOUT": "300ms",
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """News with the console, selections, a worker, a scheduler, on a PostgreSQL of their own."""
    with tempfile.TemporaryDirectory(prefix="pin-console-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        operators = home / "operators"
        operators.write_text(f"{make_operator(OPERATOR, Role.OPERATOR, PASSWORD).line}\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PIN_")}
        news_port, selections_port = free_ports("127.0.0.1", 2)
        options = StackOptions(
            state_dir=home,
            environment=environment | TIMINGS,
            news_port=news_port,
            selections_port=selections_port,
            operators_file=operators,
            cwd=home,
        )
        log = home / "log"
        with log.open("w", encoding="utf-8") as lines, Stack(options, Journal(lines)) as running:
            running.start()
            yield running


@pytest.fixture(scope="module")
def engine(stack: Stack) -> Iterator[Engine]:
    made = make_engine(stack.database_url)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def story(stack: Stack) -> Story:
    """Published posts of an author, each showing a snapshot or three."""
    auth = AuthOptions()
    token = mint(
        local_keys(stack.options.state_dir).private.read_bytes(),
        kid=KEY_ID,
        issuer=auth.issuer,
        audience=auth.audience,
        lifetime=auth.leeway * 60,
        now=utc_now(),
        user_id=new_id(),
        tenant_id=new_id(),
    )
    made = Story(Api(stack.options.news_url, token), Api(stack.options.selections_url, token))
    made.make_selections(3)
    side_by_side(made.make_post, range(56), lambda _: None)
    return made


def _count(engine: Engine, status: str) -> int:
    statement = text("SELECT count(*) FROM news.snapshot_detach_outbox WHERE status = :status")
    with engine.connect() as connection:
        return int(connection.execute(statement, {"status": status}).scalar_one())


def _says(page: Page, words: str) -> bool:
    """Does the first page, loaded now, say so in its verdict."""
    page.goto("/ops")
    return words in page.locator("#live h1").inner_text()


@pytest.mark.req("J25", "J29", "C6")
def test_a_backlog_builds_and_drains_and_what_was_given_up_is_given_back(
    stack: Stack, story: Story, engine: Engine, chromium: Browser
) -> None:
    embedding = [post for post in story.ledger.posts if post.embeds]
    with Watched(chromium, stack.options.news_url, viewport={"width": 1100, "height": 780}) as watched:
        page = watched.sign_in()
        assert eventually(lambda: _says(page, "Delivering: nothing waits."), within=15)

        stack.stop_child("selections")
        side_by_side(story.drop_embed, embedding[:4], lambda _: None)
        page.locator("#live h1", has_text="Stuck on NETWORK").wait_for(timeout=20_000)  # it is not loaded again
        assert page.locator("#live .verdict.bad").is_visible()
        eventually(lambda: _count(engine, "Quarantined") == 4, within=40)

        _pause(page)
        side_by_side(story.delete, embedding[4:], lambda _: None)
        backlog = _count(engine, "Pending")
        assert backlog > 40
        stack.start_child("selections")
        assert _says(page, "Paused by otto")
        assert _count(engine, "Pending") == backlog
        _resume(page)
        eventually(lambda: _count(engine, "Pending") < backlog - 15, within=20, every=0.002)
        with _held(stack):  # in the midst of the drain, so that it is seen however fast the machine is
            assert 0 < _count(engine, "Pending") < backlog
            eventually(lambda: _is_seen_to_drain(page), within=10, every=0.01)
            keep_image(page, "now-draining")
        eventually(lambda: _count(engine, "Pending") == 0, within=30)
        assert eventually(lambda: _says(page, "quarantined: a person must look"), within=15)

        quarantined = _count(engine, "Quarantined")
        plan = _give_back(page, quarantined)
        page.locator("#live, main").get_by_text("Completed").first.wait_for(timeout=30_000)
        eventually(lambda: _count(engine, "Quarantined") + _count(engine, "Pending") == 0, within=30)
        _audited(page, quarantined, plan)


@contextmanager
def _held(stack: Stack) -> Iterator[None]:
    """The worker's processes stand still."""
    os.killpg(stack.child("worker-1").pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(stack.child("worker-1").pid, signal.SIGCONT)


def _pause(page: Page) -> None:
    page.get_by_text("Pause the job").click()
    page.get_by_label("Reason").fill("so that the drain is seen from its start")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_text("The job is paused since").wait_for()


def _resume(page: Page) -> None:
    page.get_by_text("Resume the job").click()
    page.get_by_label("Reason").fill("selections runs again")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_text("The job is resumed").wait_for()


def _is_seen_to_drain(page: Page) -> bool:
    """Does the page, its figures renewed as every few seconds, say that the backlog drains and how far that is."""
    page.evaluate("htmx.ajax('GET', '/ops/live', {target: '#live', swap: 'innerHTML'})")
    bar = page.locator("#drained")
    if not page.locator("#live h1").inner_text().startswith("Draining") or not bar.count():
        return False
    return 0 < float(bar.get_attribute("value") or 0) < float(bar.get_attribute("max") or 0)


def _give_back(page: Page, count: int) -> UUID:
    page.goto("/ops/quarantine")
    page.get_by_role("button", name=f"Requeue {count}…").first.click()
    assert page.get_by_text("nothing has moved yet").is_visible()
    page.get_by_label("Reason", exact=True).first.fill("selections runs again")
    page.get_by_label("How many to try first").fill("2")
    page.get_by_role("button", name="Requeue", exact=True).click()
    page.wait_for_url("**/ops/quarantine/plans/*")
    return UUID(page.url.rpartition("/")[2])


def _audited(page: Page, count: int, plan: UUID) -> None:
    page.goto("/ops/audit?action=requeue")
    rows = page.locator("tbody tr")
    assert rows.count() == count
    said = rows.first.inner_text()
    assert OPERATOR in said
    assert "selections runs again" in said
    assert str(plan) in said
    page.locator("tbody a").first.click()
    timeline = page.locator(".timeline").inner_text().lower()
    assert "requeue by otto: selections runs again" in timeline
    assert "quarantined after 4 attempts: network" in timeline
    assert "done: selections says that it is detached" in timeline
