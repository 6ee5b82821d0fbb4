import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import pytest

from pin.outgoing.detach import DetachCall
from pin.outgoing.selections import SelectionsClient, never
from pin.rules.outbox import Reply
from tests.fake_selections import FakeSelections

USER = UUID(int=77)


@dataclass
class Tokens:
    """The token source: `sent` counts up by each refresh after a 401."""

    prefix: str = "token"
    refreshed: int = 0
    error: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self) -> str:
        if self.error is not None:
            raise self.error
        return f"{self.prefix}-{self.refreshed}"

    def at_hand(self) -> str | None:
        return None if self.error is not None else self.token()

    def refresh(self) -> None:
        with self.lock:
            self.refreshed += 1


class MakeClient(Protocol):
    def __call__(
        self, *, url: str | None = None, concurrency: int = 20, tokens: "Tokens | None" = None
    ) -> SelectionsClient: ...


@pytest.fixture
def fake() -> Iterator[FakeSelections]:
    with FakeSelections() as serving:
        yield serving


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def make_client(fake: FakeSelections, tokens: Tokens) -> Iterator[MakeClient]:
    """`make_client(url=…, concurrency=…)`; each client is closed after the test and leaves no thread."""
    made: list[SelectionsClient] = []

    own = tokens

    def make(*, url: str | None = None, concurrency: int = 20, tokens: Tokens | None = None) -> SelectionsClient:
        # Structurally a TokenSource: the client asks it for nothing but these three.
        made.append(SelectionsClient(fake.url if url is None else url, tokens or own, concurrency=concurrency))
        return made[-1]

    yield make
    for client in made:
        client.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "selections-client"]


@pytest.fixture
def client(make_client: MakeClient) -> SelectionsClient:
    return make_client()


def calls(count: int) -> list[DetachCall]:
    """So many calls, for the snapshots 1, 2, …"""
    return [DetachCall(UUID(int=number), "PostDeleted", USER) for number in range(1, count + 1)]


def detach(
    client: SelectionsClient,
    made: Sequence[DetachCall] | int = 1,
    *,
    call_timeout: float = 5.0,
    within: float = 30.0,
    stopping: Callable[[], bool] = never,
) -> list[Reply | None]:
    """`detach_all`, in seconds."""
    return client.detach_all(
        calls(made) if isinstance(made, int) else made,
        call_timeout=timedelta(seconds=call_timeout),
        deadline=time.monotonic() + within,
        stopping=stopping,
    )


def detach_one(client: SelectionsClient, *, call_timeout: float = 5.0) -> Reply:
    """The reply to one call, which is always made."""
    (reply,) = detach(client, call_timeout=call_timeout)
    assert reply is not None
    return reply
