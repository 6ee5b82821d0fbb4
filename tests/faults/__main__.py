"""`python -m tests.faults [PATH …]`: end a process at its every border, recover, check the invariants.

Prints a table path x crash points x violations; exits with 1 when one invariant is broken or a path has no points.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.console import Console
from rich.table import Table

from tests.faults.paths import PATHS
from tests.faults.shard import shard
from tests.faults.sweep import Sweep


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
    parser.add_argument("--break", dest="breakage", help="break the product on purpose (tests/faults/breakages.py)")
    parser.add_argument("--processes", type=int, default=4, help="that share the borders of each path")
    given = parser.parse_args(arguments)
    paths, shards = given.path or list(PATHS), given.processes
    found = {path: Sweep(path) for path in paths}
    # A point is mostly waiting: several processes, each with a PostgreSQL of its own, share the borders.
    with ProcessPoolExecutor(shards, mp_context=get_context("spawn")) as pool:
        for sweeps in pool.map(
            shard, range(1, shards + 1), [paths] * shards, [shards] * shards, [given.breakage] * shards
        ):
            for one in sweeps:
                found[one.path].join(one)
    return 0 if report(list(found.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
