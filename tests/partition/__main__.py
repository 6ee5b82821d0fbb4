"""`python -m tests.partition`, which is `make partition`: root on Linux, with iproute2's `ip`."""

import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from db.embedded import EmbeddedServerError
from tests.chaos.fleet import FleetError
from tests.chaos.judging import judge
from tests.partition.network import Network, NetworkError
from tests.partition.scenarios import SCENARIOS
from tests.partition.site import HOSTS, site


def obstacle() -> str | None:
    """Why this machine cannot run it, None when it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's own"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command 'ip' is missing: install iproute2"
    return None


def main() -> int:
    """Play every scenario, then judge; answers the exit code."""
    if (why := obstacle()) is not None:
        _say(f"partition skipped: {why}")
        return 0
    home = Path(tempfile.mkdtemp(prefix="pin-partition-"))
    home.chmod(0o711)  # root's PostgreSQL runs as another user, who must reach its data
    log = home / "partition.log"
    try:
        violations = _play(home, log)
        if violations:
            _say(f"what the processes said: {_keep(log)}")
    except (NetworkError, FleetError, EmbeddedServerError) as error:
        _say(f"partition failed: {error}")
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    result = "failed" if violations else "ok"
    _say(f"partition {result}: scenarios={len(SCENARIOS)} violations={violations}")
    return 1 if violations else 0


def _play(home: Path, log: Path) -> int:
    failed = 0
    with ExitStack() as stack:
        network = stack.enter_context(Network(HOSTS))
        stage = stack.enter_context(site(network, home, log, _say))
        _say(f"{len(HOSTS)} hosts: {', '.join(HOSTS)}")
        for scenario in SCENARIOS:
            began = time.monotonic()
            try:
                seen = scenario(stage)
            except AssertionError as error:
                failed += 1
                seen = f"FAILED: {error}"
            stage.fleet.all_up()
            _say(f"  {scenario.__name__.replace('_', ' '):40} {time.monotonic() - began:5.1f} s  {seen}")
        stage.writers.stop()
        verdict = judge(stage.url, stage.away, stage.writers.ledger, log, {})
        ledger = stage.writers.ledger
        _say(f"requests: {ledger.ok.total()} ok, {ledger.failed.total()} failed")
        verdict.watched = False  # a session cut off in its transaction is the network's doing, not the product's
        for line in verdict.lines():
            _say(line)
    return failed + len(verdict.violations)


def _keep(log: Path) -> Path:
    descriptor, kept = tempfile.mkstemp(prefix="pin-partition-", suffix=".log")
    os.close(descriptor)
    shutil.copyfile(log, kept)
    return Path(kept)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
