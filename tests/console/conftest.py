"""The console over real HTTP: one server and one database a module, a viewer and an operator signed in to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from db.connect import make_engine
from pin.access.operators import Role, make_operator
from pin.config.sections import OpsOptions
from tests import serving
from tests.console.browsing import OPERATOR, PASSWORD, VIEWER, Visitor
from tests.serving import Keys
from web.app import create_app

keys = serving.keys


@pytest.fixture(scope="session")
def operators_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A viewer and an operator of the same password."""
    path = tmp_path_factory.mktemp("operators") / "operators"
    both = [make_operator(VIEWER, Role.VIEWER, PASSWORD), make_operator(OPERATOR, Role.OPERATOR, PASSWORD)]
    path.write_text("# who may sign in\n\n" + "".join(f"{one.line}\n" for one in both), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def database(_clone: Callable[[], str]) -> str:
    """A database of the module's own, migrated and empty."""
    return _clone()


@pytest.fixture(scope="module")
def engine(database: str) -> Iterator[Engine]:
    """The production engine on the module's database."""
    made = make_engine(database)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def console_url(database: str, keys: Keys, operators_file: Path) -> Iterator[str]:
    """The base URL of an app that serves selections and the console."""
    settings = serving.settings_for(
        keys, database, contexts=("selections", "ops"), ops=OpsOptions(operators_file=operators_file)
    )
    with serving.serving(create_app(settings)) as url:
        yield url


@pytest.fixture
def stranger(console_url: str) -> Iterator[Visitor]:
    """Someone who has not signed in."""
    with Visitor(console_url) as visitor:
        yield visitor


@pytest.fixture
def viewer(console_url: str) -> Iterator[Visitor]:
    """A viewer, signed in."""
    with Visitor(console_url) as visitor:
        visitor.sign_in(VIEWER)
        yield visitor


@pytest.fixture
def operator(console_url: str) -> Iterator[Visitor]:
    """An operator, signed in."""
    with Visitor(console_url) as visitor:
        visitor.sign_in(OPERATOR)
        yield visitor
