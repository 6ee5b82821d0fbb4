"""The APIs as a user of them sees them: one HTTP request at a time, a bearer token, JSON."""

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT = 30.0  # seconds
_REDIRECTION = 300


class RefusedError(Exception):
    """A request that had to succeed did not. The message names it and the answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A 2xx answer."""

    body: Any
    etag: str


@dataclass(frozen=True, slots=True)
class Api:
    """One API at `base_url`, spoken to with one token. Safe between threads: a connection lives for a request."""

    base_url: str
    token: str = field(repr=False)

    def call(self, method: str, path: str, body: object = None, etag: str | None = None) -> Answered:
        """The 2xx answer to a request. Raises RefusedError for any other, and when there is none."""
        parts = urlsplit(self.base_url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers(body, etag))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(f"{method} {path}: {type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status >= _REDIRECTION:
            raise RefusedError(f"{method} {path}: {answer.status} {content.decode(errors='replace')[:300]}")
        return Answered(json.loads(content) if content else None, answer.headers.get("ETag", ""))

    def _headers(self, body: object, etag: str | None) -> Mapping[str, str]:
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if etag is not None:
            headers["If-Match"] = etag
        return headers
