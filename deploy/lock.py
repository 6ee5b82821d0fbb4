# ruff: noqa: INP001 - a script, part of no package
"""`python deploy/lock.py`: write the parts of requirements.lock that the image installs.

runtime.lock is what the product needs when it runs, build.lock what it takes to build its wheel; development tools are
in neither. Run in the project's environment, after `make lock` and `make setup`; a test compares the files.
"""

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux", "platform_system": "Linux"}
"""What the image is, so that the files are the same wherever they are written."""

HEAD = "# Part of requirements.lock, by `python deploy/lock.py`.\n"


def closure(roots: Iterable[str]) -> set[str]:
    """The names of these requirements and of all that they need here."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        wanted = waiting.pop()
        name, extras = canonicalize_name(wanted.name), frozenset(wanted.extras)
        if (wanted.marker is not None and not wanted.marker.evaluate(IMAGE)) or (name, extras) in found:
            continue
        found.add((name, extras))
        try:
            needs = [Requirement(need) for need in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for need in needs:
            if need.marker is None or any(need.marker.evaluate(IMAGE | {"extra": extra}) for extra in extras | {""}):
                need.marker = None
                waiting.append(need)
    return {name for name, _ in found}


def parts() -> dict[str, str]:
    """The text of each file, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    whole = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^[A-Za-z0-9][^\n]*(?:\n    --hash[^\n]*)*\n", whole, re.MULTILINE)
    roots = {"runtime.lock": project["project"]["dependencies"], "build.lock": project["build-system"]["requires"]}
    return {
        file: HEAD + "".join(entry for entry in locked if canonicalize_name(re.split(r"[=\[ ;]", entry)[0]) in names)
        for file, names in ((file, closure(needs)) for file, needs in roots.items())
    }


if __name__ == "__main__":
    for file, text in parts().items():
        (ROOT / "deploy" / file).write_text(text, encoding="utf-8")
