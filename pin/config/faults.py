"""What is wrong with the settings, said so that it can be mended at once: field, value, rule, nearest known name."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pin.config.secrets import looks_secret, shown_url

EXIT_BAD_SETTINGS = 78
"""Exit code of a process whose settings are wrong (EX_CONFIG of sysexits)."""


UNSHOWN = object()
"""The value of a fault that is nobody's to read: of what is no setting only the name is said (A69)."""

_SECTIONS = {"retry", "queue", "worker", "web", "auth", "ops", "alerts", "log", "metrics", "retention"}
_URLS = {"database_url", "selections_url", "token_url", "runbooks_url"}
_SINKS = {"alertmanager_url", "webhook_url"}


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the field as the documentation names it, the value given, the rule it breaks."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" if self.value is UNSHOWN else f"{self.field} = {self.value}: {self.rule}"


class SettingsError(Exception):
    """The process does not start (J7). `faults` holds every fault found, `str()` one line each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def faults_of(error: ValidationError) -> Iterator[Fault]:
    """Findings of pydantic as faults."""
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        yield Fault(field, _given(field, item.get("input")), message[:1].lower() + message[1:])


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
        yield _unknown(name, nearest(upper, known))


def unknown_keys(model: type[BaseModel], table: Mapping[str, Any], section: str = "") -> Iterator[Fault]:
    """Keys of a TOML file that name no setting, each with the nearest that does. Case counts there."""
    defaults = {field: info.default for field, info in model.model_fields.items()}
    sections = {field: default for field, default in defaults.items() if isinstance(default, BaseModel)}
    for key, value in table.items():
        if key in sections and isinstance(value, dict):
            yield from unknown_keys(type(sections[key]), value, f"{section}{key}.")
        elif key not in defaults:
            near = nearest(key.lower(), defaults)
            yield _unknown(f"{section}{key}", near and f"{section}{near}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like it, if one is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), None)


def _unknown(name: str, near: str | None) -> Fault:
    return Fault(name, UNSHOWN, "is no setting" + (f"; did you mean {near}?" if near else ""))


def _given(field: str, value: object) -> object:
    """A refused value as it may be shown: never of a whole section, a path, or what has the form of a secret."""
    section, _, name = field.rpartition(".")
    if isinstance(value, Path) or not isinstance(value, str | int | float | timedelta) or field in _SECTIONS:
        return UNSHOWN
    if name in _URLS:
        return shown_url(str(value))
    if name in _SINKS:
        return shown_url(str(value), path=False)
    if "file" in name or "key" in field or name == "state_dir" or section == "auth.public_keys":
        return UNSHOWN
    return UNSHOWN if looks_secret(str(value)) else value
