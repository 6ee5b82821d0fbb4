"""Guesses at passwords: few from one address, and one at a time from all of them together."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum

FREE = 5
"""Wrong passwords an address may send before it has to wait."""

_FIRST_WAIT = timedelta(seconds=10)
_LONGEST_WAIT = timedelta(minutes=15)
_KEPT = 10_000  # addresses
_MAY_WAIT = 6  # guesses, the one under way among them


class Guess(StrEnum):
    """What came of a guess."""

    RIGHT = "Right"
    WRONG = "Wrong"
    REFUSED = "Refused"
    """Not looked at: the address has to wait, or too many guess at once."""


class Throttle:
    """Counts wrong passwords by address, in this process. Thread-safe.

    By address and never by name: else anyone could lock out the operator who is on call.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MAY_WAIT)
        self._wrong: OrderedDict[str, tuple[int, datetime]] = OrderedDict()

    def wait(self, address: str) -> timedelta:
        """How long this address has to wait before its next guess; zero when it may."""
        with self._lock:
            count, last = self._wrong.get(address, (0, self._clock()))
            if count < FREE:
                return timedelta(0)
            pause: timedelta = min(_FIRST_WAIT * 2 ** min(count - FREE, 10), _LONGEST_WAIT)
            return max(timedelta(0), last + pause - self._clock())

    def guess(self, address: str, holds: Callable[[], bool]) -> Guess:
        """Is the guess right; a wrong one is counted. Guesses take turns: each costs memory and a core.

        Few may stand and wait for their turn, since each that does holds a thread that the APIs need as well.
        """
        if not self._waiting.acquire(blocking=False):
            return Guess.REFUSED
        try:
            with self._turn:
                if self.wait(address):
                    return Guess.REFUSED
                right = holds()
                self._count(address, right=right)
        finally:
            self._waiting.release()
        return Guess.RIGHT if right else Guess.WRONG

    def _count(self, address: str, *, right: bool) -> None:
        with self._lock:
            count, _ = self._wrong.pop(address, (0, None))
            if not right:
                self._wrong[address] = (count + 1, self._clock())
                if len(self._wrong) > _KEPT:
                    self._wrong.popitem(last=False)
