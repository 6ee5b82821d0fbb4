"""Crash points in short: four or five borders of a path. `make faults` tries every one."""

import pytest

from tests.faults.paths import PATHS
from tests.faults.site import Site
from tests.faults.sweep import sample

_EVERY = {
    "set-blocks": 9,
    "set-blocks, late create": 6,
    "delete-post": 8,
    "tick": 19,
    "batch": 11,
    "requeue": 5,
    "detach endpoint": 8,
}

_SAID = {"changed", "refused: SwitchRefused", "Completed", "consumed", "served"}
_REQUEUED = "Requeued Requeued NotQuarantined Unknown"


@pytest.mark.req("D17", "G6", "G7", "G13", "J11", "J12", "J15", "J16", "J18", "J23", "J33")
@pytest.mark.case("A16")
@pytest.mark.parametrize("path", PATHS)
def test_a_process_that_is_ended_or_frozen_anywhere_loses_nothing(site: Site, path: str) -> None:
    found = sample(site, path, _EVERY[path])
    assert found.violations == []
    assert found.killed > 0
    assert found.said in {*_SAID, _REQUEUED}
