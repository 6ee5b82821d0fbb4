"""What the calls to selections need of a token: that one can be had, and that a refused one can be replaced."""

from typing import Protocol

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
