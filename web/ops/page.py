"""A page: a template, what every page shows, and headers that keep a browser from anything but these pages."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response

from web.ops import wording
from web.ops.assets import static_url

HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not `no-referrer`: a form would then be sent with `Origin: null`, which is no one's.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

SECTIONS = (
    ("/ops", "Now"),
    ("/ops/runs", "Runs"),
    ("/ops/entries", "Entries"),
    ("/ops/quarantine", "Quarantine"),
    ("/ops/alerts", "Alerts"),
    ("/ops/subject", "Post / Snapshot"),
    ("/ops/audit", "Audit"),
    ("/ops/system", "System"),
)


def html(template: str, *, code: int = 200, headers: Mapping[str, str] | None = None, **shown: Any) -> Response[bytes]:
    """The page. Raises jinja2 errors for a name that the template wants and is not given."""
    content = environment().get_template(template).render(sections=SECTIONS, **shown)
    return Response(
        content.encode("utf-8", "replace"),
        status_code=code,
        headers={**HEADERS, **(headers or {})},
        media_type="text/html",
    )


def see_other(path: str) -> Response[bytes]:
    """Go on to `path`, by GET."""
    return Response(b"", status_code=303, headers={**HEADERS, "Location": path}, media_type="text/html")


@cache
def environment() -> Environment:
    """The templates: everything escaped, everything inert, nothing undefined passed over."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=wording.inert,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "stamp": wording.stamp,
        "span": wording.span,
        "number": wording.number,
        "short": wording.short,
        "in_url": wording.in_url,
    }
    made.globals |= {"static": static_url, "since": wording.since, "command": wording.command}
    return made
