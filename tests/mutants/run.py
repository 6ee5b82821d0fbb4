"""Each mutant in a copy of the source tree of its own, against the tests of its mark; nothing is changed in place."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.kept import Mutant
from tests.mutants.marks import marked

ROOT = Path(__file__).parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "*.egg-info", ".pin", "node_modules")
_PATIENCE = 300.0
"""Seconds for one mutant; who does not end by then has been noticed by nobody."""
_PASSED, _FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a mutant. `fault` says why it proves nothing."""

    mutant: Mutant
    killed: bool
    seconds: float = 0.0
    fault: str = ""


def stale(mutant: Mutant, root: Path = ROOT) -> str:
    """Why the mutant can no longer be applied or judged; empty when it can."""
    source = root / mutant.file
    count = source.read_text().count(mutant.old) if source.is_file() else 0
    if count != 1:
        return f"its text occurs {count} times in {mutant.file}"
    if mutant.old == mutant.new:
        return "it changes nothing"
    try:
        ast.parse(source.read_text().replace(mutant.old, mutant.new))
    except SyntaxError as error:
        return f"with it {mutant.file} no longer parses: {error.msg}"
    for node in mutant.nodes:
        marks = marked(root, node)
        if marks is None:
            return f"there is no test {node}"
        if mutant.mark not in marks:
            return f"{node} does not bear the mark {mutant.mark}"
    return "" if mutant.nodes else "it names no test"


def copied(into: Path) -> Path:
    """A copy of the source tree."""
    tree = into / "tree"
    shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
    if (ROOT / ".venv").is_dir():
        (tree / ".venv").symlink_to(ROOT / ".venv")  # some tests start the installed commands
    return tree


def judge(tree: Path, nodes: Sequence[str]) -> tuple[int | None, str]:
    """Run these tests in the tree, up to the first that fails; the exit code (None: out of time) and what was said."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", *nodes]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "out of time"
    return done.returncode, done.stdout[-3000:] + done.stderr[-1000:]


def noticed(code: int | None, said: str) -> bool:
    """Whether a test failed: an error of collection or of set-up alone notices nothing."""
    return code == _FAILED and re.search(r"^[1-9]\d* failed\b", said, re.MULTILINE) is not None


def imported_from(tree: Path) -> Path:
    """The folder that a test run in this tree imports the product from."""
    ask = "import pin.rules.outbox as product; print(product.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", ask],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return Path(said.strip()).resolve().parents[2]


def try_out(mutant: Mutant, tree: Path) -> Verdict:
    """Apply it in the tree, run its tests, take it back."""
    if fault := stale(mutant, tree):
        return Verdict(mutant, killed=False, fault=f"stale: {fault}")
    source = tree / mutant.file
    whole = source.read_text()
    began = time.monotonic()
    source.write_text(whole.replace(mutant.old, mutant.new))
    try:
        code, said = judge(tree, mutant.nodes)
    finally:
        source.write_text(whole)
    seconds = time.monotonic() - began
    if noticed(code, said):
        return Verdict(mutant, killed=True, seconds=seconds)
    fault = "survived" if code == _PASSED else f"proves nothing, its tests could not be judged: {said}"
    return Verdict(mutant, killed=False, seconds=seconds, fault=fault)


def run(mutants: Sequence[Mutant], workers: int) -> list[Verdict]:
    """All of them, each worker in a tree of its own. Tests that fail on the product as it is prove nothing."""
    found: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="pin-mutants-") as folder:
        Path(folder).chmod(0o711)
        shares = [list(mutants[at::workers]) for at in range(workers)]

        def work(number: int) -> None:
            home = Path(folder, str(number))
            home.mkdir(mode=0o711)
            tree = copied(home)
            if imported_from(tree) != tree.resolve():
                raise RuntimeError(f"the tests would import {imported_from(tree)}, not the copy in {tree}")
            share = [each for each in shares[number] if not stale(each, tree)]
            nodes = sorted({node for each in share for node in each.nodes})
            code, said = judge(tree, nodes) if nodes else (_PASSED, "")
            if code != _PASSED:
                sys.stdout.write(f"the product as it is fails these tests:\n{said}\n")
                found.extend(Verdict(each, killed=False, fault="the product as it is fails") for each in share)
                return
            for each in shares[number]:
                verdict = try_out(each, tree)
                found.append(verdict)
                sys.stdout.write(f"{'killed' if verdict.killed else 'ALIVE':7} {verdict.seconds:5.1f} s  {each.name}\n")
                sys.stdout.flush()

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(work, range(workers)))
    return found
