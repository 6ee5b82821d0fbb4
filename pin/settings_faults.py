"""What is wrong with the settings, said so that it can be mended at once: field, value, rule, nearest known name."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError

EXIT_BAD_SETTINGS = 78
"""Exit code of a process whose settings are wrong (EX_CONFIG of sysexits)."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong: the field as the documentation names it, the value given, the rule it breaks."""

    field: str
    value: object
    rule: str

    def __str__(self) -> str:
        return f"{self.field} = {masked(self.field, self.value)}: {self.rule}"


class SettingsError(Exception):
    """The process does not start (J7). `faults` holds every fault found, `str()` one line each."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))


def masked(field: str, value: object) -> str:
    """`value` for people's eyes: the password of a URL, and nothing else of it, is replaced."""
    text = str(value)
    if "url" in field.lower() and "@" in text:
        try:
            parts = urlsplit(text)
        except ValueError:
            return "***"
        user = (parts.username or "") + (":***" if parts.password else "")
        return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))
    return text


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
        near = difflib.get_close_matches(upper, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield Fault(name, given[name] if "KEY" not in upper else "***", f"is no setting{hint}")
