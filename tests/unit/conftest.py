import os
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, no `.env` and no TOML file but the test's own."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.upper().startswith("PIN_")]:
        monkeypatch.delenv(name)
