"""The console's own style and scripts, served to whoever asks: they say nothing, and the sign-in page needs them."""

import hashlib
from functools import cache
from pathlib import Path

from litestar import Response, get
from litestar.params import FromPath

from web.bulkheads import Lane, in_lane
from web.openapi import describe
from web.problems import of_status

STATIC_PATH = "/ops/static"

_FOLDER = Path(__file__).with_name("static")
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@get(
    "/static/{tag:str}/{name:str}",
    opt=describe("A file of the console", {200: None}),
    include_in_schema=False,
)
@in_lane(Lane.CONSOLE)
def static_file(tag: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """A file by its name; `tag` changes with the content, so that it may be kept for good."""
    found = _files().get(name)
    if found is None:
        raise of_status(404)
    content, current = found
    kept = "public, max-age=31536000, immutable" if tag == current else "no-cache"
    headers = {"Cache-Control": kept, "X-Content-Type-Options": "nosniff"}
    return Response(content, media_type=_TYPES[Path(name).suffix], headers=headers)


def static_url(name: str) -> str:
    """Where a file is served. Raises KeyError for one that is not there."""
    return f"{STATIC_PATH}/{_files()[name][1]}/{name}"


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Content and tag of every file, by name."""
    found = {path.name: path.read_bytes() for path in _FOLDER.rglob("*") if path.suffix in _TYPES}
    return {name: (content, hashlib.sha256(content).hexdigest()[:16]) for name, content in found.items()}
