"""The site of the faults' tests."""

from collections.abc import Iterator

import pytest

from db.embedded.server import EmbeddedServer
from tests.faults.site import Site


@pytest.fixture(scope="module")
def site(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Everything that a point needs, on the test process's PostgreSQL."""
    with Site(server, tmp_path_factory.mktemp("faults")) as made:
        yield made
