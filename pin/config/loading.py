"""The settings of this process, read once, frozen, and refused whole when anything is wrong (J7).

`load_settings` names every wrong field at once, its value and the rule.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError as UnreadableSource

from pin.config.faults import UNSHOWN, Fault, SettingsError, faults_of, unknown_keys, unknown_names
from pin.config.rules import cross_field_faults
from pin.config.sections import Section
from pin.config.settings import Settings
from pin.config.sources import CONFIG_FILE, PREFIX, dotenv_names, environment, toml_table


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process, checked as one object (J7).

    `overrides` (nested, by field name) stand above every source. Raises SettingsError listing every unknown name
    (with the nearest known one) and every field that breaks a rule, with its value and the rule.
    """
    named = dotenv_names() | environment()
    faults = list(unknown_names(Settings, named, PREFIX, ignore={CONFIG_FILE}, ignore_prefix="PIN_TEST_"))
    faults += unknown_keys(Settings, toml_table())
    given: dict[str, Any] = dict(overrides or {})
    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults += faults_of(error)
        settings = _with_defaults_for(error, given)
    except UnreadableSource as error:  # a whole section in one variable: its name is among the unknown ones
        raise SettingsError(faults or [Fault("settings", UNSHOWN, str(error))]) from None
    broken = {fault.field for fault in faults}
    faults += [fault for fault in cross_field_faults(settings) if fault.field not in broken]
    if faults:
        raise SettingsError(faults)
    return settings


def _with_defaults_for(error: ValidationError, given: Mapping[str, Any]) -> Settings:
    """The same settings with each broken field at its default, so that the other rules can be checked as well."""
    merged: dict[str, Any] = dict(given)
    for item in error.errors():
        section, *rest = (str(part) for part in item["loc"])
        default = Settings.model_fields[section].default if section in Settings.model_fields else None
        if rest and isinstance(default, Section) and rest[0] in type(default).model_fields:
            group = dict(merged.get(section) or {})
            group[rest[0]] = getattr(default, rest[0])
            merged[section] = group
        elif default is not None:
            merged[section] = default
    try:
        return Settings(**merged)
    except ValidationError:
        return Settings.model_construct()
