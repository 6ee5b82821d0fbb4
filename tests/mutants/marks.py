"""Which test bears which marks, read from the sources: nothing is imported and nothing is run."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def marked(root: Path, node: str) -> frozenset[str] | None:
    """The requirements and cases that a test's markers name, its module's included; None where there is no such test.

    node: `tests/file.py::test_name`, relative to `root`.
    """
    file, _, name = node.partition("::")
    if not (root / file).is_file():
        return None
    module = ast.parse((root / file).read_text())
    found = next((each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == name), None)
    if found is None:
        return None
    of_the_module = [
        each.value
        for each in module.body
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in each.targets)
    ]
    return frozenset(mark for each in [*found.decorator_list, *of_the_module] for mark in _named(each))


def _named(expression: ast.expr) -> Iterator[str]:
    for each in ast.walk(expression):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in {"req", "case"}:
            yield from (str(given.value) for given in each.args if isinstance(given, ast.Constant))
