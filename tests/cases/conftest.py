"""Fixtures of the cases: the job's parts in this process, and real processes on the test's database."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cases.fleet import Fleet
from tests.fake_selections import FakeSelections
from tests.job.conftest import job_settings, make_retry_job, selections_url, tick
from tests.serving import Keys, app_settings, keys, serve

__all__ = ["app_settings", "job_settings", "keys", "make_retry_job", "selections_url", "serve", "tick"]


@pytest.fixture
def selections() -> Iterator[FakeSelections]:
    """Selections, scripted."""
    with FakeSelections() as serving:
        yield serving


@pytest.fixture
def make_fleet(keys: Keys, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """`make_fleet(database, selections_url, PIN_…=…)`: starts processes of these settings, which end with it."""
    with ExitStack() as stack:

        def make(database: str, selections_url: str, **settings: str) -> Fleet:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            return stack.enter_context(Fleet(folder, database, selections_url, keys, settings))

        yield make
