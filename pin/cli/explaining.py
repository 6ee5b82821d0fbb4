"""What is known of one setting: from the settings' own source, from the value in force, from where it was given."""

import ast
import inspect
from typing import Any

from pydantic import BaseModel

from pin.config.faults import known_names, nearest
from pin.config.settings import Settings
from pin.config.sources import PREFIX, config_file, dotenv_names, environment, toml_table, without_empty
from pin.operations.system import settings_in_force


class UnknownSettingError(Exception):
    """No setting has that name; the text says which is nearest."""


def explained(name: str, settings: Settings) -> dict[str, Any]:
    """The setting by its environment or TOML name. Raises UnknownSettingError."""
    known = known_names(Settings, PREFIX)
    wanted = name.upper() if name.upper().startswith(PREFIX) else f"{PREFIX}{name.upper().replace('.', '__')}"
    if wanted not in known:
        near = nearest(wanted, known)
        raise UnknownSettingError(f"{name} is no setting" + (f"; did you mean {near}?" if near else ""))
    path = wanted.removeprefix(PREFIX).lower().split("__")
    owner: type[BaseModel] = Settings
    for section in path[:-1]:
        owner = type(owner.model_fields[section].default)
    default = owner.model_fields[path[-1]].default
    return {
        "name": wanted,
        "toml": ".".join(path),
        "default": ",".join(map(str, default)) if isinstance(default, tuple) else default and str(default),
        "value": dict(settings_in_force(settings))[wanted],
        "from": _origin(wanted, path),
        "about": _about(owner, path[-1]) or inspect.getdoc(owner),
    }


def _origin(name: str, path: list[str]) -> str:
    if any(given.upper() == name for given in environment()):
        return "environment"
    if any(given.upper() == name for given in dotenv_names()):
        return ".env"
    table: Any = without_empty(toml_table())
    for part in path:
        table = table.get(part) if isinstance(table, dict) else None
    if table is not None:
        return config_file() or "default"
    return "default"


def _about(owner: type[BaseModel], field: str) -> str | None:
    """The sentence under the field in the source: Python keeps none of it."""
    body = ast.parse(inspect.getsource(owner)).body[0]
    if not isinstance(body, ast.ClassDef):
        return None
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(sentence))),
            ) if name == field:
                return " ".join(sentence.split())
    return None
