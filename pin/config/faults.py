"""What is wrong with the settings, said so that it can be mended at once: field, value, rule, nearest known name."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

EXIT_BAD_SETTINGS = 78
"""Exit code of a process whose settings are wrong (EX_CONFIG of sysexits)."""


_SECRET_NAME = re.compile(r"key|token|secret|password|passwd", re.IGNORECASE)
_PASSWORD_ARGUMENT = re.compile(r"(password\s*=\s*)('[^']*'|[^\s&]+)", re.IGNORECASE)
_USER_INFO = re.compile(r"((?:[a-z0-9+.-]*:/+)?[^:]*):.*@", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the field as the documentation names it, the value given, the rule it breaks."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        return f"{self.field} = {masked(self.value)}: {self.rule}"


class SettingsError(Exception):
    """The process does not start (J7). `faults` holds every fault found, `str()` one line each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def masked(value: object) -> str:
    """`value` for people's eyes: the password of a URL or a connection string is replaced.

    Whatever the field is called and however the URL is broken: a slip of the pen must not put a password in a log.
    """
    text = _PASSWORD_ARGUMENT.sub(r"\1***", str(value))
    return _USER_INFO.sub(r"\1:***@", text, count=1)


def faults_of(error: ValidationError) -> Iterator[Fault]:
    """Findings of pydantic as faults."""
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        yield Fault(field, item.get("input"), message[:1].lower() + message[1:])


def known_names(model: type[BaseModel], prefix: str) -> set[str]:
    """The environment's name of every setting, upper case: `PIN_RETRY__BATCH_SIZE`."""
    names: set[str] = set()
    for field, info in model.model_fields.items():
        name = f"{prefix}{field}".upper()
        if isinstance(info.default, BaseModel):
            names |= known_names(type(info.default), f"{name}__")
        else:
            names.add(name)
    return names


def unknown_names(
    model: type[BaseModel], given: Mapping[str, object], prefix: str, *, ignore: Collection[str], ignore_prefix: str
) -> Iterator[Fault]:
    """Variables that start with the prefix and name no setting, each with the nearest name that does."""
    known = known_names(model, prefix)
    for name in sorted(given):
        upper = name.upper()
        if not upper.startswith(prefix) or upper in known or upper in ignore or upper.startswith(ignore_prefix):
            continue
        yield _unknown(name, given[name], nearest(upper, known))


def unknown_keys(model: type[BaseModel], table: Mapping[str, Any], section: str = "") -> Iterator[Fault]:
    """Keys of a TOML file that name no setting, each with the nearest that does. Case counts there."""
    defaults = {field: info.default for field, info in model.model_fields.items()}
    sections = {field: default for field, default in defaults.items() if isinstance(default, BaseModel)}
    for key, value in table.items():
        if key in sections and isinstance(value, dict):
            yield from unknown_keys(type(sections[key]), value, f"{section}{key}.")
        elif key not in defaults:
            near = nearest(key.lower(), defaults)
            shown = "a table" if isinstance(value, dict) else value
            yield _unknown(f"{section}{key}", shown, near and f"{section}{near}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like it, if one is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def _unknown(name: str, value: object, near: str | None) -> Fault:
    hint = f"; did you mean {near}?" if near else ""
    return Fault(name, "***" if _SECRET_NAME.search(name) else value, f"is no setting{hint}")
