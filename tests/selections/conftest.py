"""Fixtures of the selections API over real HTTP: one server and one database a module, for every test has own ids."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from tests import serving
from tests.selections.api import Api
from tests.serving import Keys
from web.app import create_app

keys = serving.keys


@pytest.fixture(scope="module")
def database(_clone: Callable[[], str]) -> str:
    """A database of the module's own, migrated and empty."""
    return _clone()


@pytest.fixture(scope="module")
def _client(database: str, keys: Keys) -> Iterator[httpx.Client]:
    with (
        serving.serving(create_app(serving.settings_for(keys, database))) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=20) as client,
    ):
        yield client


@pytest.fixture
def api(_client: httpx.Client, keys: Keys) -> Api:
    """The selections API, with an owner, a tenant and the news service of this test's own."""
    return Api(_client, keys)
