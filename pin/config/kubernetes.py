"""The variables that Kubernetes puts into every pod of a namespace, known by their form (A31).

For each Service it sets `<NAME>_SERVICE_HOST`, `<NAME>_SERVICE_PORT`, `<NAME>_PORT` and more. For a Service called
`pin`, or `pin-something`, they start like our settings. The value must have the form as well, so that a misspelt
setting is still refused.
"""

import re
from ipaddress import ip_address

_URL = r"(?:tcp|udp|sctp)://\S+"
_NUMBER = r"\d{1,5}"
_FORMS = tuple(
    (re.compile(name), re.compile(value, re.IGNORECASE))
    for name, value in (
        (r"[A-Z0-9_]+_PORT", _URL),
        (r"[A-Z0-9_]+_PORT_\d+_(?:TCP|UDP|SCTP)", _URL),
        (r"[A-Z0-9_]+_PORT_\d+_(?:TCP|UDP|SCTP)_PROTO", r"tcp|udp|sctp"),
        (r"[A-Z0-9_]+_PORT_\d+_(?:TCP|UDP|SCTP)_PORT", _NUMBER),
        (r"[A-Z0-9_]+_SERVICE_PORT(?:_[A-Z0-9_]+)?", _NUMBER),
    )
)
_ADDRESS = re.compile(r"[A-Z0-9_]+(?:_SERVICE_HOST|_PORT_\d+_(?:TCP|UDP|SCTP)_ADDR)")


def set_by_kubernetes(name: str, value: str) -> bool:
    """Whether the variable is one of a Service's, by its name and the form of its value."""
    if _ADDRESS.fullmatch(name):
        return value == "None" or _is_address(value)  # a headless Service has no address
    return any(form.fullmatch(name) and holds.fullmatch(value) for form, holds in _FORMS)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
