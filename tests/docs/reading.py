"""What the pages list, and what the code says of itself without being run."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_LOGGERS = {"log", "_log"}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_METRICS = {
    "Counter": "_total",
    "Histogram": "",
    "Gauge": "",
    "CounterMetricFamily": "_total",
    "GaugeMetricFamily": "",
}


def page(name: str) -> str:
    """The text of a page of docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """The cells of every row of every table of a page, headings left out."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page(name).splitlines()
        if line.startswith("|")
    ]
    rules = [index for index, row in enumerate(cells) if set("".join(row)) <= set("-: ")]
    headings = {index - 1 for index in rules}
    return [row for index, row in enumerate(cells) if index not in headings and index not in rules]


def listed(name: str) -> dict[str, str]:
    """The rows of a page that begin with a name in backticks: that name, and the rest of its row."""
    return {
        match[1]: " | ".join(row[1:]) for row in rows(name) if (match := re.fullmatch(r"`([^`]+)`(?: .*)?", row[0]))
    }


def sources() -> Iterator[ast.Module]:
    """The product's modules, parsed."""
    for top in ("pin", "db", "actors", "web"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"), str(path))
    yield ast.parse((ROOT / "scheduler.py").read_text(encoding="utf-8"))


def log_events() -> dict[str, set[str]]:
    """Every event that the code logs, with the names of the fields given to it."""
    events: dict[str, set[str]] = defaultdict(set)
    for call in _calls():
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr=level),
                args=[ast.Constant(value=str(event)), *_],
                keywords=keywords,
            ) if name in _LOGGERS and level in _LEVELS:
                events[event] |= {keyword.arg for keyword in keywords if keyword.arg}
            case ast.Call(
                func=ast.Name(id="line"),
                args=[ast.Constant(value=str(level)), ast.Constant(value=str(event))],
                keywords=keywords,
            ) if level in _LEVELS:  # one of many that are written together
                events[event] |= {keyword.arg for keyword in keywords if keyword.arg}
    return dict(events)


def unnamed_log_calls() -> list[str]:
    """Log calls whose event is no literal, which no page could list."""
    return [
        ast.unparse(call)
        for call in _calls()
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in _LOGGERS
        and call.func.attr in _LEVELS
        and not (call.args and isinstance(call.args[0], ast.Constant))
    ]


def metric_names() -> set[str]:
    """Every metric that the code makes, as Prometheus reads it."""
    names = set()
    for call in _calls():
        made = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        match call.args:
            case [ast.Constant(value=str(name)), *_] if made in _METRICS:
                names.add(name.removesuffix("_total") + _METRICS[made])
    return names


def _calls() -> Iterator[ast.Call]:
    for module in sources():
        yield from (node for node in ast.walk(module) if isinstance(node, ast.Call))
