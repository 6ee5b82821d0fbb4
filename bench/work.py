"""The work that every system gets: the same snapshots, reason, user and token, and one endpoint."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

REASON = "BlockReplaced"
USER = UUID("6f1b1d0e-5a5b-4c0e-9a37-0c5a9b0a1d11")


def snapshot_ids(count: int) -> list[UUID]:
    """The same ids every time."""
    numbers = random.Random(7)  # noqa: S311 - ids of a bench
    return [UUID(int=numbers.getrandbits(128), version=4) for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done in one run, and where. `ids_file`, `token_file` and `private_key` are for the children."""

    round: int
    delay_ms: int
    ids: list[UUID]
    ids_file: Path
    token_file: Path
    private_key: Path
    endpoint: "EndpointControl"


class EndpointControl:
    """The bench's side of bench/endpoint.py."""

    def __init__(self, port: int, patience: float) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._http = httpx.Client(base_url=self.url, timeout=patience, trust_env=False)

    def reset(self, delay_ms: int) -> None:
        """Forget all calls; answer each after `delay_ms` from now on."""
        self._ask(f"/bench/reset?delay_ms={delay_ms}")

    def wait(self, answered: int) -> None:
        """Until so many calls are answered since the reset. Raises httpx.TimeoutException when that takes too long."""
        self._ask(f"/bench/wait?answered={answered}")

    def tally(self) -> dict[str, Any]:
        """Calls, answers and distinct ids since the reset, the moments of the first and last, processor seconds."""
        return self._ask("/bench/tally")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ask(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._http.get(path).raise_for_status().json()
        return answer
