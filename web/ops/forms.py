"""Forms: what makes a submission count, in the order origin, session, role, token."""

import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from pin.rules.contract import ErrorCode
from web.ops.console import AnyRequest
from web.ops.session import Session
from web.problems import ProblemError, invalid, of_status

MAX_FIELDS = 2_000


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form, as sent."""

    fields: Mapping[str, list[str]]

    def one(self, name: str) -> str:
        """The field's value without spaces around it; empty when it was not sent."""
        return (self.fields.get(name) or [""])[0].strip()

    def all(self, name: str) -> list[str]:
        """Every value of the field."""
        return [value.strip() for value in self.fields.get(name, [])]


def same_origin(request: AnyRequest) -> None:
    """Raises ProblemError 403 unless the browser says that the form stood on this very site."""
    given = request.headers.getall("origin", [])
    host = request.headers.get("host", "")
    if len(given) != 1 or not host or not _same_site(given[0], host):
        raise refused("This form was not sent from this console. Open the page again and send it from there.")


def _same_site(origin: str, host: str) -> bool:
    """Whether a browser's origin names this host; a port that its scheme implies may be written or not (A39)."""
    try:
        there = urlsplit(origin)
        here = urlsplit(f"{there.scheme}://{host}")
        implied = {"https": 443, "http": 80}.get(there.scheme)
        ports = there.port or implied, here.port or implied
    except ValueError:
        return False
    if here.netloc != host or "@" in host or implied is None:
        return False
    return bool(there.hostname) and there.hostname == here.hostname and ports[0] == ports[1]


def read_form(request: AnyRequest, body: bytes) -> Form:
    """The body as a form. Raises ProblemError 415 for another content type, 400 for what is no form."""
    media_type, _, _ = request.headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/x-www-form-urlencoded":
        raise of_status(415, "Send a form.")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise invalid("The form is not well formed.") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if "\0" in value:
            raise invalid("Text must not contain U+0000.")
        fields.setdefault(name, []).append(value)
    return Form(fields)


def submitted(request: AnyRequest, body: bytes, session: Session) -> Form:
    """A form by which an operator changes something. Raises ProblemError 403 for a viewer and for a foreign form."""
    same_origin(request)
    if not session.may_change:
        raise refused("You are signed in as a viewer: only an operator may change anything.")
    return signed_form(request, body, session)


def signed_form(request: AnyRequest, body: bytes, session: Session) -> Form:
    """A form of this session's. Raises ProblemError 403 for one without the session's token."""
    same_origin(request)
    form = read_form(request, body)
    if not _same(form.one("csrf"), session.csrf):
        raise refused("This form is not of your session. Open the page again and send it from there.")
    return form


@contextmanager
def told_in_words(*refusals: type[Exception]) -> Iterator[None]:
    """What an operation refuses, a missing reason among it, is a 400 that says why as a sentence."""
    kinds: tuple[type[Exception], ...] = (ValueError, *refusals)
    try:
        yield
    except kinds as error:
        text = str(error)
        raise invalid(f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}") from None


def refused(detail: str) -> ProblemError:
    """403, told in words."""
    return ProblemError(403, ErrorCode.FORBIDDEN, "Forbidden", detail)


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
