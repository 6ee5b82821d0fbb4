"""A share of the borders, in a process of its own with a PostgreSQL of its own."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from db.embedded.server import EmbeddedServer
from tests.faults.site import Site
from tests.faults.sweep import Sweep, sweep


@contextmanager
def own_site() -> Iterator[Site]:
    """A site on a PostgreSQL of its own, gone with it."""
    bin_dir = os.environ.get("PIN_TEST_PG_BIN")
    with (
        tempfile.TemporaryDirectory(prefix="pin-faults-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="pin-faults-pg-", ignore_cleanup_errors=True) as home,
    ):
        Path(home).chmod(0o711)
        server = EmbeddedServer(Path(home, "postgres"), durable=False, bin_dir=Path(bin_dir) if bin_dir else None)
        with server, Site(server, Path(folder)) as site:
            yield site


def shard(number: int, paths: Sequence[str], every: int, breakage: str | None) -> list[Sweep]:
    """In a process of its own: the borders `number`, `number + every`, … of each path."""
    with own_site() as site:
        return [sweep(site, path, every=every, start=number, breakage=breakage) for path in paths]
