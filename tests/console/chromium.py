"""Debian's Chromium under Playwright, as a fixture to import; and axe-core, which finds what shuts people out."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.console.browsing import OPERATOR, PASSWORD
from tests.tools import debian_tool

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
]
AXE = Path(__file__).parent / "vendor" / "axe-4.14.1.min.js"
IMAGES = os.environ.get("PIN_TEST_SCREENSHOTS")
"""Where to keep screenshots; `make screenshots` says docs/images."""
KEPT = {"now-light", "now-phone", "entry-dark", "quarantine-light", "now-draining"}
"""The screens that the pages of docs/ show."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser for the module, with a profile of its own that is thrown away. Missing: skipped, in CI a failure."""
    path = CHROMIUM if CHROMIUM.exists() else debian_tool("chromium", "chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page that fails the test for any error in its scripts, any breach of its policy, any request elsewhere."""

    def __init__(self, browser: Browser, base_url: str, **options: Any) -> None:
        self.base_url = base_url
        self.faults: list[str] = []
        self.context: BrowserContext = browser.new_context(base_url=base_url, **options)
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda sent: None if self._is_ours(sent.url) else self.faults.append(sent.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.context.close()
        assert kind is not None or self.faults == []

    def sign_in(self, name: str = OPERATOR) -> Page:
        """Sign in as a person does; answers the page."""
        self.page.goto("/ops/login")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/ops")
        return self.page

    def _is_ours(self, url: str) -> bool:
        return url.startswith((self.base_url, "data:", "blob:"))


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page as it is now, each with where."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(result => result.violations)")
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def keep_image(page: Page, name: str) -> None:
    """Keep what is seen now, where the run was told to (PIN_TEST_SCREENSHOTS)."""
    if IMAGES and name in KEPT:
        page.screenshot(path=Path(IMAGES) / f"{name}.png", animations="disabled", full_page=name == "now-light")
