"""What the calls to selections need of a token: that one can be had, and that a refused one can be replaced."""

from typing import Protocol

from pin.outgoing.errors import CannotSend

MAX_TOKEN_LENGTH = 8 * 1024


class TokenError(Exception):
    """The token is not valid, or none can be had. The message is safe to log."""


class TokenSource(Protocol):
    """Where the token comes from (`pin.access.machine_tokens` has the real one)."""

    def token(self) -> str:
        """A token to send; may block while one is fetched. Raises TokenError when none can be had."""

    def at_hand(self) -> str | None:
        """The token that `token` would answer at once, None when it would have to fetch one; never blocks."""

    def refresh(self) -> None:
        """Forget the token that was answered 401."""


class Bearer:
    """The Authorization header of one batch or request, made anew only when the token changes. Thread-safe."""

    def __init__(self, tokens: TokenSource) -> None:
        self._tokens = tokens
        self._made: tuple[str, str] = ("", "")

    def at_hand(self) -> str | None:
        """The header, where that takes no waiting. Raises CannotSend for a token that no header can hold."""
        token = self._tokens.at_hand()
        return None if token is None else self._header(token)

    def fetched(self) -> str:
        """The header; may block while a token is fetched. Raises TokenError, CannotSend."""
        return self._header(self._tokens.token())

    def refuse(self, header: str) -> None:
        """The header was answered 401: its token is given up, unless another has taken its place already."""
        token = self._tokens.at_hand()
        if token is not None and self._header(token) == header:
            self._tokens.refresh()

    def _header(self, token: str) -> str:
        made_of, header = self._made
        if token != made_of:
            if not token or any(not " " < char <= "~" for char in token):
                raise CannotSend("InvalidToken")
            header = f"Bearer {token}"
            self._made = token, header
        return header
