"""How commands print: data on stdout as table, JSON or JSON lines; what came from outside cannot act on a terminal."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import rich_click as click

Row = Mapping[str, Any]
"""A row's values under their camelCase names, as the API has them; times are UTC, spans of time are seconds."""

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True
)


def emit(rows: Sequence[Row], output: str) -> None:
    """Print rows, all with the same names: a table, one JSON array, or a JSON object a line."""
    _WRITERS[output](rows)


def emit_one(record: Row, output: str) -> None:
    """Print one record: `name  value` lines, a JSON object, or the object on one line."""
    if output == "table":
        width = max(map(len, record), default=0)
        for name, value in record.items():
            click.echo(f"{name.ljust(width)}  {_cell(value)}")
        return
    click.echo(json.dumps(plain(record), indent=2 if output == "json" else None))


def row_of(value: Any) -> dict[str, Any]:
    """A dataclass as a row, its fields under their camelCase names."""
    return {camel(field.name): getattr(value, field.name) for field in fields(value)}


def camel(name: str) -> str:
    """`next_attempt_at` as `nextAttemptAt`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def plain(value: Any) -> Any:  # noqa: PLR0911 - a case a kind
    """The value as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(row_of(value))
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _:
            return value


def inert(text: str) -> str:
    """Text without anything that a terminal acts on (A22)."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def shown_time(moment: datetime) -> str:
    """A time as tables have it: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cell(value: Any) -> str:  # noqa: PLR0911 - a case a kind
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return shown_time(value)
        case timedelta():
            return f"{value.total_seconds():g} s"
        case float():
            return f"{value:g}"
        case Mapping() | list() | tuple():
            return inert(json.dumps(plain(value)))
        case _:
            return inert(str(plain(value)))


def _write_table(rows: Sequence[Row]) -> None:
    """Columns as wide as they need: an id that is cut is no id."""
    if not rows:
        return
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for number, cells in enumerate(table):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        click.secho(line, bold=number == 0)


def _write_json(rows: Sequence[Row]) -> None:
    click.echo(json.dumps(plain(list(rows)), indent=2))


def _write_jsonl(rows: Sequence[Row]) -> None:
    for row in rows:
        click.echo(json.dumps(plain(row)))


_WRITERS: dict[str, Callable[[Sequence[Row]], None]] = {
    "table": _write_table,
    "json": _write_json,
    "jsonl": _write_jsonl,
}
