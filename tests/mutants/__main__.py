"""`python -m tests.mutants [WORD…]`: the mutants whose names hold one of the words, all of them without.

Ends with `mutants ok: killed=N survived=0`, and with 1 where one survives, is stale, or cannot be judged.
"""

import argparse
import sys

from tests.mutants.kept import KEPT
from tests.mutants.run import run


def main() -> int:
    """Run, print, answer the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="only mutants whose names hold one of these")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    wanted = [each for each in KEPT if not asked.words or any(word in each.name for word in asked.words)]
    found = run(wanted, max(1, asked.workers))
    left = [each for each in found if not each.killed]
    for each in left:
        sys.stdout.write(
            f"{each.mutant.name}\n    {each.fault}\n    must be noticed by {' '.join(each.mutant.nodes)}\n"
        )
    killed = len(found) - len(left)
    if left or len(found) != len(wanted):
        sys.stdout.write(f"mutants failed: killed={killed} survived={len(wanted) - killed}\n")
        return 1
    sys.stdout.write(f"mutants ok: killed={killed} survived=0\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
