"""Fixtures of the app over real HTTP: one server and one database a module; tests that need their own use `serve`."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests import serving
from tests.serving import Keys
from web.app import create_app

app_settings, keys, serve = serving.app_settings, serving.keys, serving.serve
m2m_token, user_token = serving.m2m_token, serving.user_token


@pytest.fixture(scope="module")
def database(_clone: Callable[[], str]) -> str:
    """A database of the module's own, migrated and empty."""
    return _clone()


@pytest.fixture(scope="module")
def client(database: str, keys: Keys) -> Iterator[httpx.Client]:
    """A client of the app that serves selections."""
    settings = serving.settings_for(keys, database)
    with (
        serving.serving(create_app(settings)) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=20) as opened,
    ):
        yield opened
