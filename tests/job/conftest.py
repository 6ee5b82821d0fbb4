"""The retry job against real PostgreSQL and the real selections API, its processes' parts in this one."""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, Protocol

import pytest
from litestar import Litestar

from pin.config.settings import Settings
from pin.job import tick as retry_job
from pin.job.tick import RetryJob, RunSummary
from scheduler import make_job
from tests.job.scene import FAST, working
from tests.serving import MakeSettings, app_settings, keys, serve
from web.app import create_app

__all__ = ["app_settings", "keys", "serve"]


class MakeJobSettings(Protocol):
    def __call__(self, selections_url: str | None = None, **changed: Any) -> Settings: ...


@pytest.fixture
def job_settings(database: str, app_settings: MakeSettings) -> MakeJobSettings:
    """Settings of the job's processes on the test's database; `changed` replaces sections."""

    def make(selections_url: str | None = None, **changed: Any) -> Settings:
        return app_settings(database, **(FAST | {"selections_url": selections_url or "http://127.0.0.1:9"} | changed))

    return make


@pytest.fixture
def selections_url(app_settings: MakeSettings, database: str, serve: Callable[[Litestar], str]) -> str:
    """The real selections API, over HTTP."""
    return serve(create_app(app_settings(database, contexts=("selections",))))


@pytest.fixture
def make_retry_job() -> Iterator[Callable[[Settings], RetryJob]]:
    """The production job of these settings."""
    made: list[RetryJob] = []

    def make(settings: Settings) -> RetryJob:
        made.append(make_job(settings))
        return made[-1]

    yield make
    for job in made:
        job.engine.dispose()


@pytest.fixture
def tick(make_retry_job: Callable[[Settings], RetryJob]) -> Callable[[Settings], RunSummary]:
    """One production tick with a worker beside it; answers the run's summary."""

    def run(settings: Settings) -> RunSummary:
        job = make_retry_job(settings)
        with working(settings):
            return retry_job.run(job, Event())

    return run
