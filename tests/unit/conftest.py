from collections.abc import Iterator

import hypothesis
import pytest
import pytest_socket

# An example's duration is the machine's load, and a failure's example belongs into a test of its own.
hypothesis.settings.register_profile("pin", deadline=None, database=None)
hypothesis.settings.load_profile("pin")


@pytest.fixture(autouse=True)
def _no_sockets() -> Iterator[None]:
    """Unit tests talk to nobody."""
    pytest_socket.disable_socket()
    yield
    pytest_socket.enable_socket()
