"""The job's parts and the two contexts as servers, as their own tests have them."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from pin.access.machine_tokens import MachineTokens as TokenSource
from pin.config.sections import AuthOptions
from pin.outgoing.selections import SelectionsClient
from tests.job.conftest import job_settings, make_retry_job, selections_url, tick
from tests.news.conftest import make_world, world
from tests.news.world import World
from tests.serving import Keys, app_settings, keys, serve

__all__ = [
    "app_settings",
    "job_settings",
    "keys",
    "make_retry_job",
    "make_world",
    "selections_url",
    "serve",
    "tick",
    "world",
]


@pytest.fixture
def client_of(keys: Keys) -> Iterator[Callable[[str], SelectionsClient]]:
    """`client_of(url)`: the production client, as news; closed after the test."""
    made: list[SelectionsClient] = []
    auth = AuthOptions(public_keys=(keys.public,), m2m_private_key=keys.private, leeway=timedelta(seconds=10))

    def make(url: str) -> SelectionsClient:
        made.append(SelectionsClient(url, TokenSource.from_settings(auth)))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(world: World, client_of: Callable[[str], SelectionsClient]) -> SelectionsClient:
    """To the world's selections, without the proxy."""
    return client_of(world.selections_url)
