"""The kept list holds: each mutant applies once, and names tests that bear its mark."""

from pathlib import Path

import pytest

from tests.mutants.kept import KEPT, Mutant
from tests.mutants.marks import marked
from tests.mutants.run import ROOT, noticed, stale

LEAST = 66


@pytest.mark.case("A62")
def test_every_mutant_of_the_list_still_applies_and_its_tests_bear_its_mark() -> None:
    found = {each.name: why for each in KEPT if (why := stale(each))}
    assert found == {}
    assert len({(each.file, each.old, each.new) for each in KEPT}) == len(KEPT) >= LEAST


@pytest.mark.case("A62")
def test_a_stale_mutant_is_said_to_be_one(tmp_path: Path) -> None:
    test = "mutants/test_mutants.py::a_stale_mutant_is_said_to_be_one"
    good = Mutant("A62", "tests/mutants/marks.py", "def marked(", "def unmarked(", (test,))
    assert stale(good) == ""
    assert "occurs 0 times" in stale(Mutant("A62", good.file, "what is nowhere", "x", (test,)))
    assert "occurs 0 times" in stale(good, tmp_path)
    assert "does not bear" in stale(Mutant("J1", good.file, good.old, good.new, (test,)))
    assert "there is no test" in stale(Mutant("A62", good.file, good.old, good.new, ("mutants/test_mutants.py::x",)))
    assert "no longer parses" in stale(Mutant("A62", good.file, good.old, "def (", (test,)))
    assert "names no test" in stale(Mutant("A62", good.file, good.old, good.new, ()))
    assert marked(ROOT, good.nodes[0]) == frozenset({"A62"})


@pytest.mark.case("A62")
def test_only_a_test_that_fails_notices() -> None:
    assert noticed(1, "FAILED tests/x.py::test_y\n1 failed, 2 passed in 0.10s\n")
    assert not noticed(1, "ERROR tests/x.py::test_y\n1 error in 0.10s\n")
    assert not noticed(2, "1 failed, 1 error in 0.10s\n")
    assert not noticed(0, "2 passed in 0.10s\n")
    assert not noticed(None, "out of time")
