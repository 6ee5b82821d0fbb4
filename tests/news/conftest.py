"""Fixtures of the news context over real HTTP."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.news.world import World, world_on
from tests.serving import Keys, MakeSettings, app_settings, keys

__all__ = ["app_settings", "keys"]


@pytest.fixture
def make_world(
    engine: Engine,
    database: str,
    keys: Keys,
    app_settings: MakeSettings,
) -> Iterator[Callable[..., World]]:
    """`make_world(retry=…, web=…)`: a world whose news has these settings."""
    with ExitStack() as stack:
        yield lambda **changed: stack.enter_context(world_on(engine, database, keys, app_settings, **changed))


@pytest.fixture
def world(make_world: Callable[..., Any]) -> World:
    """A world with the default settings."""
    made: World = make_world()
    return made
