"""`make partition` where it cannot run says so, and is no failure. What it plays needs root: not in the suite."""

import subprocess
import sys

import pytest

from tests.acceptance.processes import ROOT, environment


@pytest.mark.req("C2")
def test_without_root_or_ip_it_is_skipped_with_a_clear_word() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.partition"],
        cwd=ROOT,
        env=environment(PATH="/nonexistent"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout in {
        "partition skipped: network namespaces are Linux's own\n",
        "partition skipped: network namespaces need root\n",
        "partition skipped: the command 'ip' is missing: install iproute2\n",
    }
