"""The pages as people meet them: in light and dark, on a telephone, by keyboard, without scripts, with axe-core."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal

import pytest
from playwright.sync_api import Browser
from sqlalchemy import Connection, Engine

from pin.clock import utc_now
from tests.console import chromium as browsers
from tests.console import seeds
from tests.console.chromium import Watched, keep_image, violations

chromium = browsers.chromium
pytestmark = pytest.mark.req("C5")

PAGES = {
    "now": "/ops",
    "runs": "/ops/runs",
    "entries": "/ops/entries",
    "quarantine": "/ops/quarantine",
    "subject": "/ops/subject",
    "audit": "/ops/audit",
    "system": "/ops/system",
}
DESK = {"width": 1100, "height": 780}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def places(engine: Engine) -> dict[str, str]:
    """Paths of pages, over a database as a bad night leaves it; those of an entry and of a run with them."""
    now = utc_now()
    with engine.begin() as connection:
        entry, run = _bad_night(connection, now)
    return PAGES | {"entry": f"/ops/entries/{entry}", "run": f"/ops/runs/{run}", "nothing": "/ops/entries?q=color:red"}


def _bad_night(connection: Connection, now: datetime) -> tuple[object, object]:
    chance = random.Random(3)  # noqa: S311 - the same night each time
    run = None
    for minutes in range(60):
        at = now - timedelta(minutes=minutes, seconds=5)
        run = seeds.run(connection, at, result="Skipped" if minutes % 2 else "Completed", claimed=minutes % 2 or 17)
        for _ in range(chance.randint(1, 9)):
            age = timedelta(seconds=chance.choice([0.3, 0.5, 4, 20, 90, 200, 500, 700]))
            done = seeds.entry(connection, at, age=age, status="Done", updated=at)
            seeds.attempts(connection, done, [("Succeeded", None, at)])
    due = now + timedelta(minutes=3)
    for one in seeds.entries(connection, now, 140, age=timedelta(minutes=12), attempts=3, version=6, due=due):
        seeds.attempts(connection, one, [("Retried", "HTTP 503", now - timedelta(minutes=ago)) for ago in (9, 7)])
    known = seeds.entries(connection, now, 7, age=timedelta(hours=5), status="Quarantined", error="HTTP 503")
    seeds.entries(connection, now, 2, age=timedelta(hours=9), status="Quarantined", error="HTTP 400 VALIDATION_ERROR")
    seeds.attempts(connection, known[0], [("Quarantined", "HTTP 503", now - timedelta(hours=4))])
    return known[0], run


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> Literal["light", "dark"]:
    chosen: Literal["light", "dark"] = request.param
    return chosen


@pytest.fixture(scope="module")
def desk(chromium: Browser, console_url: str, scheme: Literal["light", "dark"]) -> Iterator[Watched]:
    """An operator at a desk."""
    with Watched(chromium, console_url, color_scheme=scheme, viewport=DESK) as watched:
        watched.page.goto("/ops/login")
        assert violations(watched.page) == []
        watched.sign_in()
        yield watched


@pytest.mark.parametrize("name", [*PAGES, "entry", "run"])
def test_axe_finds_nothing(desk: Watched, places: dict[str, str], scheme: str, name: str) -> None:
    desk.page.goto(places[name])
    desk.page.wait_for_load_state("networkidle")
    if name == "now":
        assert desk.page.locator(".u-wrap canvas").count() == 2
    assert violations(desk.page) == []
    keep_image(desk.page, f"{name}-{scheme}")


def test_what_is_folded_away_is_as_open_to_all(desk: Watched, places: dict[str, str]) -> None:
    for name in ("now", "quarantine"):
        desk.page.goto(places[name])
        desk.page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
        assert violations(desk.page) == []
    desk.page.get_by_role("button", name="Requeue 7…").click()
    assert desk.page.get_by_text("nothing has moved yet").is_visible()
    assert violations(desk.page) == []


def test_a_telephone_shows_every_page_without_sideways_scrolling(
    chromium: Browser, console_url: str, places: dict[str, str]
) -> None:
    with Watched(chromium, console_url, viewport=PHONE, is_mobile=True, has_touch=True) as phone:
        page = phone.sign_in()
        for name, path in places.items():
            if name == "nothing":
                continue
            page.goto(path)
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
            assert violations(page) == [], name
            keep_image(page, f"{name}-phone")


def test_the_pages_say_the_same_without_scripts(chromium: Browser, console_url: str, places: dict[str, str]) -> None:
    with Watched(chromium, console_url, java_script_enabled=False, viewport=DESK) as plain:
        page = plain.sign_in()
        page.goto(places["now"])
        assert page.get_by_role("heading", level=1).is_visible()
        assert page.get_by_role("table").filter(has_text="Delivered in the step").is_visible()
        assert page.get_by_role("table").filter(has_text="Took").is_visible()
        page.goto(places["quarantine"])
        page.get_by_role("checkbox").first.check()
        page.get_by_role("button", name="Requeue selected").click()
        assert page.get_by_role("heading", name="Requeue 1 entry").is_visible()


def test_everything_is_reached_by_keyboard(chromium: Browser, console_url: str, places: dict[str, str]) -> None:
    with Watched(chromium, console_url, viewport=DESK) as keys:
        page = keys.sign_in()
        page.goto(places["entries"])
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "q"
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        page.keyboard.type("state:Quarantined")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ops/entries?q=state%3AQuarantined")
        page.get_by_role("link", name="Quarantined 9").focus()
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_a_command_is_copied(chromium: Browser, console_url: str, places: dict[str, str]) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with Watched(chromium, console_url, viewport=DESK, permissions=permissions) as watched:
        page = watched.sign_in()
        page.goto(places["entry"])
        page.get_by_role("button", name="Copy").last.click()
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == f"pin entries show {places['entry'].rpartition('/')[2]}"


def test_old_figures_do_not_pass_for_new_ones(chromium: Browser, console_url: str, places: dict[str, str]) -> None:
    with Watched(chromium, console_url, viewport=DESK) as watched:
        page = watched.sign_in()
        page.goto(places["now"])
        told = page.get_by_role("alert").filter(has_text="These figures are old")
        assert not told.is_visible()
        page.route("**/ops/live", lambda route: route.fulfill(status=503, body="away"))
        told.wait_for(timeout=10_000)
        page.unroute("**/ops/live")
        told.wait_for(state="hidden", timeout=10_000)
        assert {"503" in fault for fault in watched.faults} == {True}
        watched.faults.clear()
        watched.context.clear_cookies()
        page.wait_for_url("**/ops/login", timeout=10_000)
        watched.faults.clear()  # the 401 that led there
