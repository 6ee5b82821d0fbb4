"""A short run of chaos over real processes: whatever dies, nothing is lost and nothing is done twice."""

import re
import subprocess
import sys

import pytest

from tests.acceptance.processes import ROOT, environment


@pytest.mark.timeout(230)
@pytest.mark.req("J6", "J16", "J18", "J23", "J32", "J33", "G5", "G6", "G9", "G13", "G21", "D7", "D17")
@pytest.mark.case("A5", "A13", "A14", "A24")
def test_faults_over_the_whole_stack_break_no_invariant() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", "0.55", "--seed", "7"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = re.fullmatch(r"chaos ok: faults=(\d+) violations=0", ended.stdout.splitlines()[-1])
    assert result, ended.stdout
    assert int(result[1]) >= 15
