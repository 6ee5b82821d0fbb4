"""`python -m tests.requirements`: each requirement and case of docs/requirements.md, with the tests that prove it.

Exits with 1 when one that is due now has no test, or when a test names one that the file does not have.
`--cases` lists the cases alone, and exits with 1 when one of them has no test, due or not.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[1] / "docs" / "requirements.md"
_ROW = re.compile(r"^\| ([ACDGJ]\d+(?:\.\d+)?) \| (.+) \| (now|later) \|$", re.MULTILINE)
_MARKERS = ("req", "case")


@dataclass(frozen=True)
class Line:
    """One line of the file. `due_now`: this release must prove it."""

    id: str
    text: str
    due_now: bool


@dataclass
class Marks:
    """A pytest plugin: the node ids of the tests, by the ids that their markers name."""

    tests: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for marker in (marker for name in _MARKERS for marker in item.iter_markers(name)):
                for named in marker.args:
                    # One line for all the parameters of a test.
                    node = item.nodeid.partition("[")[0]
                    if node not in self.tests[named]:
                        self.tests[named].append(node)


def lines(text: str) -> list[Line]:
    """The rows of the file's tables, in their order."""
    return [Line(named, said, due == "now") for named, said, due in _ROW.findall(text)]


def proofs(known: Sequence[Line], tests: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """Is it proven, by id: it has a test, or it has parts (`J30.1` of `J30`) and all of them have."""
    proven = {line.id: bool(tests.get(line.id)) for line in known}
    for line in known:
        if parts := [proven[part] for part in proven if part.startswith(f"{line.id}.")]:
            proven[line.id] = all(parts)
    return proven


def report(known: Sequence[Line], tests: Mapping[str, Sequence[str]]) -> tuple[list[str], bool]:
    """The report's lines, and whether nothing is missing."""
    proven = proofs(known, tests)
    unknown = sorted(set(tests) - set(proven))
    due = [line.id for line in known if line.due_now]
    gaps = [named for named in due if not proven[named]]
    said: list[str] = []
    for line in known:
        state = "proven" if proven[line.id] else "GAP" if line.due_now else "later"
        said += [f"{line.id:6} {state:7} {line.text}", *(f"{'':14} {node}" for node in tests.get(line.id, ()))]
    said += [f"unknown: {named}, named by {node}" for named in unknown for node in tests[named]]
    if gaps:
        said.append(f"requirements missing: {len(gaps)} of {len(due)}: {' '.join(gaps)}")
    if not gaps and not unknown:
        said.append(f"requirements ok: {len(due)} of {len(due)} proven")
    return said, not gaps and not unknown


def cases(known: Sequence[Line], tests: Mapping[str, Sequence[str]]) -> tuple[list[str], bool]:
    """The cases alone, each with its tests, and whether all of them are kept."""
    wanted = [line for line in known if line.id.startswith("A")]
    kept = [line for line in wanted if tests.get(line.id)]
    said: list[str] = []
    for line in wanted:
        state = "kept" if line in kept else "GAP"
        said += [f"{line.id:6} {state:7} {line.text}", *(f"{'':14} {node}" for node in tests.get(line.id, ()))]
    complete = bool(wanted) and len(kept) == len(wanted)
    said.append(f"cases {'ok' if complete else 'missing'}: {len(kept)} of {len(wanted)}")
    return said, complete


def main(arguments: Iterable[str] = ()) -> int:
    """Collect (nothing is run), print, answer the exit code."""
    marks, passed = Marks(), list(arguments)
    told = cases if "--cases" in passed else report
    paths = [argument for argument in passed if argument != "--cases"]
    code = pytest.main(["--collect-only", "-qq", "-n0", "--no-summary", *paths], plugins=[marks])
    if code != pytest.ExitCode.OK:
        return int(code)
    said, complete = told(lines(_FILE.read_text()), marks.tests)
    sys.stdout.write("\n".join(["", *said, ""]))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
