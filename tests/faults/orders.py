"""What the harness tells the process that it will end, and how: one JSON message each way a line."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

NEVER = 1_000_000_000
"""A border that no path reaches."""


@dataclass(frozen=True)
class Order:
    """Walk `path` on `database` and stop at border number `stop_at` of those whose names start with `named`.

    `facts` are the ids of the path's scene.
    """

    path: str
    database: str
    selections_url: str
    private_key: str
    public_key: str
    stop_at: int
    log: str
    named: str = ""
    breakage: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The message of one order."""
        return json.dumps(asdict(self)).encode()

    @property
    def keys(self) -> tuple[Path, Path]:
        """The files of the private and the public key."""
        return Path(self.private_key), Path(self.public_key)


def decode(message: bytes) -> Order:
    """The order of a message."""
    return Order(**json.loads(message))
