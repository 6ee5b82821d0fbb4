"""The chaos run notices a product that is broken: every breakage, in processes of its own, is among the violations."""

import subprocess
import sys

import pytest

from tests.acceptance.processes import ROOT, environment
from tests.chaos.__main__ import NOTICED
from tests.chaos.breaking import BREAKAGES
from tests.chaos.schedule import schedule


@pytest.mark.timeout(230)
@pytest.mark.req("J12", "J16", "J18", "G5")
def test_a_broken_product_is_noticed() -> None:
    assert set(NOTICED) == set(BREAKAGES)

    ended = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--self-check"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "self-check ok: 4 breakages noticed" in ended.stdout.splitlines()[-1]


@pytest.mark.req("J33")
def test_a_seed_deals_the_same_faults_again_and_another_deals_others() -> None:
    first, again, other = list(schedule(1, 60)), list(schedule(1, 60)), list(schedule(2, 60))

    assert first == again
    assert first != other
    assert len({fault.name for fault in first}) > 15
    assert all(fault.at >= 0 and fault.at + fault.lasts <= 60 for fault in first)
