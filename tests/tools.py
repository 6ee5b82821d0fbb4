"""Programs of Debian's that some tests need: looked for in one place, never passed over in silence."""

import os
import shutil
from pathlib import Path

import pytest


def debian_tool(name: str, package: str) -> Path:
    """The path of the program. Missing: the test is skipped with a word on a developer's machine, and fails in CI."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not on this machine: .ci/run installs Debian's package {package}")
    pytest.skip(f"{name} is not on this machine (Debian: apt install {package})")
