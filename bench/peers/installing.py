"""Where the peers live: a folder of the bench's own, filled from PyPI and npm the first time it is asked for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON_PACKAGES = ("aiohttp==3.14.5", "asyncpg==0.32.0", "pgqueuer==1.6.0", "procrastinate==3.10.0", "uvloop==0.23.0")
NODE_PACKAGES = ("node@22", "graphile-worker@0.18.0", "pg-boss@12.38.0", "undici@7.30.2")
"""Node itself comes along: both tools ask for 22.12 or newer."""


def folder() -> Path:
    """The cache; `BENCH_PEERS` names another place."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("BENCH_PEERS") or cache / "pin-bench-peers")


def python() -> Path | None:
    """The interpreter that has the Python peers; None, with a word why, where they cannot be had."""
    home = folder() / "python"
    found = home / "bin" / "python"
    if (home / ".installed").exists():
        return found
    base = str(Path(sys.base_prefix) / "bin" / "python3")  # the product's own interpreter has no pip
    made = _run([base, "-m", "venv", "--without-pip", str(home)]) and _run(
        [base, "-m", "pip", "--python", str(found), "install", "--quiet", *PYTHON_PACKAGES]
    )
    return _installed(home, found, "pgqueuer, procrastinate and the aiohttp loop", made=made)


def node() -> Path | None:
    """The Node that has the Node peers; None, with a word why, where they cannot be had."""
    home = folder() / "node"
    found = home / "node_modules" / "node" / "bin" / "node"
    if (home / ".installed").exists():
        return found
    npm = shutil.which("npm")
    if npm is None:
        print("bench: graphile-worker and pg-boss are left out: npm is not there", flush=True)
        return None
    home.mkdir(parents=True, exist_ok=True)
    (home / "package.json").write_text('{"private": true}')
    made = _run([npm, "install", "--silent", "--prefix", str(home), *NODE_PACKAGES])
    return _installed(home, found, "graphile-worker and pg-boss", made=made)


def _installed(home: Path, found: Path, what: str, *, made: bool) -> Path | None:
    if not made:
        print(f"bench: {what} are left out: they could not be installed", flush=True)
        return None
    (home / ".installed").touch()
    return found


def _run(command: list[str]) -> bool:
    print(f"bench: installing peers: {' '.join(command[:4])} …", flush=True)
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
