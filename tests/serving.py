"""The app over real HTTP: keys, tokens, settings and a uvicorn server on a free port, as fixtures to import."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest
import uvicorn
from litestar import Litestar

from pin.access.signing import mint, new_key_pair
from pin.clock import utc_now
from pin.config.sections import AuthOptions
from pin.config.settings import Settings
from tests.waiting import eventually

ISSUER = AUDIENCE = "pin"


@dataclass(frozen=True)
class Keys:
    """The key pair that signs every token of the suite; `kid` is the files' stem."""

    private: Path
    public: Path

    @property
    def kid(self) -> str:
        return self.public.stem

    def token(
        self, *, client: str | None = None, user_id: UUID | None = None, tenant_id: UUID | None = None, **changed: Any
    ) -> str:
        """A valid token; `changed` replaces arguments of `mint` (now, lifetime, issuer, …)."""
        given: dict[str, Any] = {
            "kid": self.kid,
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "lifetime": timedelta(minutes=5),
            "now": utc_now(),
        }
        pem = changed.pop("private_key_pem", None) or self.private.read_bytes()
        return mint(pem, client=client, user_id=user_id, tenant_id=tenant_id, **(given | changed))


class MakeSettings(Protocol):
    def __call__(self, database: str, **changed: Any) -> Settings: ...


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(*new_key_pair(tmp_path_factory.mktemp("keys"), "test"))


@pytest.fixture
def app_settings(keys: Keys) -> MakeSettings:
    """`app_settings(database, contexts=('selections',), …)`: settings of a test's app; `changed` replaces fields."""

    def make(database: str, **changed: Any) -> Settings:
        return settings_for(keys, database, **changed)

    return make


@pytest.fixture
def serve() -> Iterator[Callable[[Litestar], str]]:
    """`serve(app)`: the base URL under which the app now answers, until the test is over."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(serving(app))


@pytest.fixture
def m2m_token(keys: Keys) -> Callable[..., str]:
    """`m2m_token(client='news')`."""

    def token(client: str = "news", **changed: Any) -> str:
        return keys.token(client=client, **changed)

    return token


@pytest.fixture
def user_token(keys: Keys) -> Callable[..., str]:
    """`user_token(user_id, tenant_id)`."""

    def token(user_id: UUID, tenant_id: UUID, **changed: Any) -> str:
        return keys.token(user_id=user_id, tenant_id=tenant_id, **changed)

    return token


def settings_for(keys: Keys, database: str, **changed: Any) -> Settings:
    """Settings of an app of selections alone on `database`; `changed` replaces fields."""
    auth = AuthOptions(public_keys=(keys.public,), m2m_private_key=keys.private)
    given: dict[str, Any] = {"database_url": database, "contexts": ("selections",), "auth": auth}
    return Settings(**(given | changed))


@contextlib.contextmanager
def serving(app: Litestar, port: int = 0) -> Iterator[str]:
    """A uvicorn server in a thread of its own; yields the base URL and stops the server, lifespan included, after."""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        assert eventually(lambda: server.started or not thread.is_alive(), within=30)
        assert server.started, "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


def bearer(token: str) -> dict[str, str]:
    """The header that carries `token`."""
    return {"Authorization": f"Bearer {token}"}
