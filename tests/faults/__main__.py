"""`python -m tests.faults [--every K] [PATH …]`: end a process at its every border, recover, check the invariants.

Prints a table path x crash points x violations; exits with 1 when one invariant is broken or a path has no points.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from db.embedded import EmbeddedServer
from pin.telemetry.logs import configure_logging
from tests.faults.paths import PATHS
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


def report(sweeps: Sequence[Sweep]) -> bool:
    """Print the table and what is broken; answer whether all is well."""
    table = Table("path", "borders", "killed", "frozen", "violations", "seconds", title="crash points")
    for one in sweeps:
        table.add_row(
            one.path, str(one.borders), str(one.killed), str(one.frozen), str(len(one.violations)), f"{one.seconds:.1f}"
        )
    console = Console()
    console.print(table)
    for one in sweeps:
        for broken in one.violations:
            console.print(f"{one.path}: {broken}", markup=False, highlight=False, soft_wrap=True)
    empty = [one.path for one in sweeps if one.killed == 0]
    found = sum(len(one.violations) for one in sweeps)
    points = sum(one.killed + one.frozen for one in sweeps)
    if empty:
        console.print(f"no points tried: {', '.join(empty)}", markup=False, highlight=False)
    word = "failed" if found or empty else "ok"
    console.print(f"faults {word}: points={points} violations={found}", highlight=False)
    return not found and not empty


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep the paths; answer the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("path", nargs="*", help=f"one of: {', '.join(PATHS)}; all unless named")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th border")
    parser.add_argument("--break", dest="breakage", help="break the product on purpose (tests/faults/breakages.py)")
    given = parser.parse_args(arguments)
    configure_logging(log_format="console", level="critical", process="faults")
    began = time.monotonic()
    sweeps: list[Sweep] = []
    with own_site() as site:
        for path in given.path or PATHS:
            sweeps.append(sweep(site, path, every=given.every, breakage=given.breakage))
            sys.stderr.write(f"{path}: {sweeps[-1].killed} killed, {sweeps[-1].frozen} frozen\n")
    sys.stderr.write(f"{time.monotonic() - began:.0f} s\n")
    return 0 if report(sweeps) else 1


if __name__ == "__main__":
    sys.exit(main())
