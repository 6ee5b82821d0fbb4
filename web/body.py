"""Request bodies and ids, decoded from the very bytes sent, so that every fault is the contract's 400 (A21)."""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from litestar import Request

from web.problems import invalid, of_status

_T = TypeVar("_T", bound=msgspec.Struct)

_CANONICAL = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLACE = re.compile(r"(?P<message>.*?)(?: - at `(?P<field>[^`]*)`)?", re.DOTALL)


def decode(request: Request[Any, Any, Any], body: bytes, type_: type[_T]) -> _T:
    """`body` as a `type_`, strictly. Raises ProblemError 415 for another content type, 400 for everything else.

    Refused, never guessed at: no body, a BOM, invalid UTF-8, a wrong type, an unknown or missing field, one named
    twice, text with U+0000 (PostgreSQL cannot hold it), an empty id.
    """
    if not body:
        raise invalid("A body is required.", field="$")
    _require_json(request)
    try:
        decoded = msgspec.json.decode(body, type=type_)
        json.loads(body, object_pairs_hook=_each_once)
    except msgspec.ValidationError as error:
        match = _PLACE.fullmatch(str(error))
        message, field = (match["message"], match["field"]) if match else (str(error), None)
        raise invalid(message, field=field or "$") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise invalid("The body is not well-formed JSON in UTF-8.", field="$") from None
    for field, message in _faults(decoded, "$"):
        raise invalid(message, field=field)
    return decoded


def uuid_of(text: str, field: str) -> UUID:
    """The id that a path names. Raises ProblemError 400 for anything but 8-4-4-4-12 hexadecimal digits, and for zero.

    Either case of letters is the same id (RFC 9562); braces, `urn:`, no hyphens and digits of other scripts are
    refused, though Python's UUID would take them (G2, A21).
    """
    if _CANONICAL.fullmatch(text) is None or not (found := UUID(text)).int:
        raise invalid("Must be an id of the form 8-4-4-4-12, not the empty one.", field=field)
    return found


def _require_json(request: Request[Any, Any, Any]) -> None:
    given = request.headers.getall("content-type", [])
    media_type, _, parameters = (given[0] if len(given) == 1 else "").partition(";")
    charset = parameters.replace(" ", "").replace('"', "").lower()
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        raise of_status(415, "Send application/json in UTF-8.")


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise invalid("Field is given twice.", field=f"$.{twice}")


def _faults(value: object, place: str) -> Iterator[tuple[str, str]]:
    """What the types cannot say: U+0000 in a text, an empty id."""
    match value:
        case str():
            if "\0" in value:
                yield place, "Text must not contain U+0000"
        case UUID():
            if not value.int:
                yield place, "Id must not be the empty one"
        case list() | tuple():
            for number, item in enumerate(value):
                yield from _faults(item, f"{place}[{number}]")
        case msgspec.Struct():
            for info in msgspec.structs.fields(value):
                yield from _faults(getattr(value, info.name), f"{place}.{info.encode_name}")
