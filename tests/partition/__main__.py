"""`python -m tests.partition`, which is `make partition`: root on Linux, with iproute2's `ip`."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from db.embedded.server import EmbeddedServerError
from tests.chaos.fleet import FleetError
from tests.chaos.judging import judge
from tests.partition.network import Network, NetworkError
from tests.partition.scenarios import SCENARIOS, Scenario
from tests.partition.site import HOSTS, site

_NOTICED = {"claim_off_the_lock": "I6 ", "intent_apart": "J18 "}


def obstacle() -> str | None:
    """Why this machine cannot run it, None when it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's own"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command 'ip' is missing: install iproute2"
    return None


def main(arguments: Sequence[str]) -> int:
    """Play every scenario, then judge; answers the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.partition", description=__doc__)
    parser.add_argument("--self-check", action="store_true", help="break the product on purpose: it must be noticed")
    options = parser.parse_args(arguments)
    if (why := obstacle()) is not None:
        _say(f"partition skipped: {why}")
        return 0
    home = Path(tempfile.mkdtemp(prefix="pin-partition-"))
    home.chmod(0o711)  # root's PostgreSQL runs as another user, who must reach its data
    try:
        return _self_check(home) if options.self_check else _partition(home)
    except (NetworkError, FleetError, EmbeddedServerError) as error:
        _say(f"partition failed: {error}")
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _partition(home: Path) -> int:
    violations = _play(home, SCENARIOS)
    if violations:
        _say(f"what the processes said: {_keep(home / 'partition.log')}")
    result = "failed" if violations else "ok"
    _say(f"partition {result}: scenarios={len(SCENARIOS)} violations={len(violations)}")
    return 1 if violations else 0


def _self_check(home: Path) -> int:
    violations = _play(home, SCENARIOS[:1], list(_NOTICED))
    missed = [name for name, mark in _NOTICED.items() if not any(line.startswith(mark) for line in violations)]
    if missed:
        _say(f"self-check failed: not noticed: {', '.join(missed)}")
        return 1
    _say(f"self-check ok: {len(_NOTICED)} breakages noticed, {len(violations)} violations")
    return 0


def _play(home: Path, scenarios: Sequence[Scenario], breakages: Sequence[str] = ()) -> list[str]:
    failed, log = [], home / "partition.log"
    with ExitStack() as stack:
        network = stack.enter_context(Network(HOSTS))
        stage = stack.enter_context(site(network, home, log, breakages))
        _say(f"{len(HOSTS)} hosts: {', '.join(HOSTS)}")
        for scenario in scenarios:
            began = time.monotonic()
            try:
                seen = scenario(stage)
            except AssertionError as error:
                seen = f"FAILED: {error}"
                failed.append(seen)
            stage.fleet.all_up()
            _say(f"  {scenario.__name__.replace('_', ' '):40} {time.monotonic() - began:5.1f} s  {seen}")
        stage.writers.stop()
        verdict = judge(stage.url, stage.away, stage.writers.ledger, log, {})
        verdict.watched = False  # a session cut off in its transaction is the network's doing, not the product's
        ledger = stage.writers.ledger
        _say(f"requests: {ledger.ok.total()} ok, {ledger.failed.total()} failed")
        for line in verdict.lines():
            _say(line)
    return failed + verdict.violations


def _keep(log: Path) -> Path:
    descriptor, kept = tempfile.mkstemp(prefix="pin-partition-", suffix=".log")
    os.close(descriptor)
    shutil.copyfile(log, kept)
    return Path(kept)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
