"""`python -m tests.chaos [--minutes 10] [--seed 1] [--self-check]`, which is `make chaos`."""

import argparse
import secrets
import sys

from db.embedded.server import EmbeddedServerError
from tests.chaos.breaking import BREAKAGES
from tests.chaos.fleet import FleetError
from tests.chaos.gateway import Mode
from tests.chaos.run import Report, run
from tests.chaos.schedule import Fault, Kind, schedule

_LONGEST = 120.0  # minutes

# Written for the breakages: calls that hang, and a backlog to claim; then news frozen in its first calls, and a worker
# in its batch, long enough for the job to try the same entries meanwhile, so that what they have to tell comes late.
SELF_CHECK = [
    Fault(2.5, Kind.SELECTIONS, str(Mode.DEAF), 15.5),
    Fault(6.0, Kind.FREEZE, "news", 3.0),
    Fault(7.5, Kind.FREEZE, "worker-1", 4.5),
    Fault(9.8, Kind.FREEZE, "news", 3.0),
    Fault(13.5, Kind.FREEZE, "news", 3.0),
]
SELF_CHECK_SECONDS = 18.0
NOTICED = {
    "unfenced_outcome": ("fence: ",),
    "claim_off_the_lock": ("I6 ",),
    "intent_apart": ("J18 ",),
    "transaction_on_the_wire": ("I5 ",),
}


def main(arguments: list[str]) -> int:
    """Run, print what was done and what holds; answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="from start to the last fault; at most 120")
    parser.add_argument("--seed", type=int, default=None, help="deals the same faults again; else a random one")
    parser.add_argument("--self-check", action="store_true", help="break the product on purpose: the run must notice")
    options = parser.parse_args(arguments)
    try:
        return self_check() if options.self_check else chaos(min(options.minutes, _LONGEST), options.seed)
    except (FleetError, EmbeddedServerError) as error:
        sys.stdout.write(f"chaos failed: {error}\n")
        return 1


def chaos(minutes: float, seed: int | None) -> int:
    """The run proper."""
    seed = secrets.randbelow(10_000) if seed is None else seed
    sys.stdout.write(f"chaos: seed {seed}, {minutes:g} minutes of faults\n")
    seconds = minutes * 60
    report = run(schedule(seed, seconds), seconds=seconds, seed=seed, say=_say)
    _print(report)
    if report.verdict.violations:
        sys.stdout.write(f"chaos failed: faults={report.faults.total()} violations={len(report.verdict.violations)}\n")
        return 1
    sys.stdout.write(f"chaos ok: faults={report.faults.total()} violations=0\n")
    return 0


def self_check() -> int:
    """With the product broken in every way at once, each must be among the violations."""
    report = run(SELF_CHECK, seconds=SELF_CHECK_SECONDS, seed=1, breakages=list(BREAKAGES), say=_say)
    _print(report)
    missed = [
        name for name, marks in NOTICED.items() if not any(line.startswith(marks) for line in report.verdict.violations)
    ]
    if missed:
        sys.stdout.write(f"self-check failed: not noticed: {', '.join(missed)}\n")
        return 1
    sys.stdout.write(f"self-check ok: {len(NOTICED)} breakages noticed, {len(report.verdict.violations)} violations\n")
    return 0


def _print(report: Report) -> None:
    ledger = report.ledger
    lines = ["", "faults injected"]
    lines += [f"  {count:5}  {name}" for name, count in sorted(report.faults.items())]
    lines += [f"  {count:5}  requests met by '{mode}'" for mode, count in sorted(report.met.items())]
    lines += [f"  {count:5}  {name} started again after ending by itself" for name, count in report.mended.items()]
    lines += ["operations                     ok   failed"]
    names = sorted({*ledger.ok, *ledger.failed})
    lines += [f"  {name:24} {ledger.ok[name]:8} {ledger.failed[name]:8}" for name in names]
    lines += [f"  {'all':24} {ledger.ok.total():8} {ledger.failed.total():8}"]
    lines += [f"  {name:24} {count:8}" for name, count in sorted(report.operator.items())]
    lines += report.verdict.lines()
    sys.stdout.write("\n".join(lines) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
