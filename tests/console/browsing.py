"""A visitor of the console who speaks HTTP as a browser does, and reads pages by their tags."""

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from types import TracebackType
from typing import Self

import httpx

VIEWER, OPERATOR, PASSWORD = "vera", "otto", "correct horse battery staple"

Fields = Mapping[str, str | Sequence[str]]


class Visitor:
    """One browser: cookies, the Origin of its forms, no redirects followed unless asked."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.client = httpx.Client(base_url=base_url, trust_env=False, timeout=20)
        self.csrf = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.client.close()

    def sign_in(self, name: str, password: str = PASSWORD, wanted: str = "") -> httpx.Response:
        """Send the sign-in form; afterwards the session's token is known, where there is a session."""
        answer = self.send("/ops/login", {"name": name, "password": password, "next": wanted})
        if answer.status_code == 303:
            self.csrf = csrf_of(self.get("/ops/system").text)
        return answer

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers=headers)

    def send(self, path: str, fields: Fields, *, origin: str | None = "", **headers: str) -> httpx.Response:
        """Send a form as it stands, from this site unless `origin` names another (None: without the header)."""
        sent = dict(headers)
        if origin is not None:
            sent["Origin"] = origin or self.base_url
        return self.client.post(path, data=dict(fields), headers=sent)

    def change(self, path: str, **fields: str | Sequence[str]) -> httpx.Response:
        """Send a form of this session's."""
        return self.send(path, {"csrf": self.csrf, **fields})


class Reading(HTMLParser):
    """What a page holds: every tag with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def having(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """The attributes of every such tag that has these."""
        return [found for name, found in self.tags if name == tag and attributes.items() <= found.items()]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def csrf_of(page: str) -> str:
    """The token of the page's first form that has one."""
    return Reading(page).having("input", name="csrf")[0]["value"]
