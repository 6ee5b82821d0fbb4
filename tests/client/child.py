# ruff: noqa: T201 - it speaks to its parent by stdout
"""A process that calls selections and ends, told to by a line of stdin: `python -m tests.client.child WAY URL`.

`closed` closes the client in the midst of its calls and uses it afterwards; `left` ends without having closed it;
`resolving` calls a name by both ways out and says how long each took; its own name server never answers.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from pin.outgoing.client import post
from pin.outgoing.detach import DetachCall
from pin.outgoing.errors import OutgoingError
from pin.outgoing.selections import SelectionsClient, SelectionsUnavailable
from pin.rules.outbox import Reply

_CALLS = [DetachCall(UUID(int=number), "PostDeleted", UUID(int=77)) for number in range(1, 41)]


class _Tokens:
    def token(self) -> str:
        return "token"

    def at_hand(self) -> str | None:
        return "token"

    def refresh(self) -> None: ...


def _batch(client: SelectionsClient, seconds: float = 5.0) -> list[Reply | None]:
    deadline = time.monotonic() + 4 * seconds
    return client.detach_all(_CALLS, call_timeout=timedelta(seconds=seconds), deadline=deadline)


def _under_load(client: SelectionsClient) -> list[threading.Thread]:
    def work() -> None:
        while any(_batch(client)):
            pass

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    return threads


def _closed(url: str) -> None:
    client = SelectionsClient(url, _Tokens())
    threads = _under_load(client)
    sys.stdin.readline()
    client.close()
    for thread in threads:
        thread.join(10)
    after = _batch(client)
    try:
        client.list_snapshots(after=None, limit=1, deadline=time.monotonic() + 5)
    except SelectionsUnavailable as error:
        loops = [thread.name for thread in threading.enumerate() if thread.name == "selections-client"]
        print(f"after: {set(after)} {error} {loops} {[thread.is_alive() for thread in threads]}", flush=True)


def _left(url: str) -> None:
    _under_load(SelectionsClient(url, _Tokens()))
    sys.stdin.readline()


def _resolving(url: str) -> None:
    silent = socket.socket(type=socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 53))
    client = SelectionsClient(url, _Tokens())
    began = time.monotonic()
    errors = {reply.error if reply else None for reply in _batch(client, 0.5)}
    print(f"detach: {errors} {time.monotonic() - began:.2f}", flush=True)
    began = time.monotonic()
    try:
        post(url, b"", {}, deadline=began + 0.5, cap=10)
    except OutgoingError as error:
        print(f"post: {error} {time.monotonic() - began:.2f}", flush=True)
    began = time.monotonic()
    client.close()
    print(f"close: {time.monotonic() - began:.2f}", flush=True)
    silent.close()


WAYS: dict[str, Callable[[str], None]] = {"closed": _closed, "left": _left, "resolving": _resolving}

if __name__ == "__main__":
    way, url = sys.argv[1:]
    print("ready", flush=True)
    WAYS[way](url)
