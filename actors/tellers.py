"""A thread for each sink in each worker process: one that hangs takes nothing from deliveries and other sinks (G27).

What a teller has in hand when its process ends is told again after its lease.
"""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from pin.job.telling import Terms, give_back, tell
from pin.outgoing.alert_sinks import Sink
from pin.outgoing.client import HttpClient
from pin.rules.alerts import QuarantinedEvent, Telling
from pin.telemetry.logs import get_logger

log = get_logger(__name__)

_STOP_WITHIN = 2.0
"""Seconds that a closing process waits for the outcome of a request that has just been ended."""


@dataclass(frozen=True, slots=True)
class _Order:
    tellings: Sequence[Telling]
    until: float


class Teller:
    """Tells one sink, one order after the other, on a thread that starts with the first. Thread-safe."""

    def __init__(self, sink: Sink, terms: Terms, patience: float) -> None:
        self._sink = sink
        self._terms = terms
        self._patience = patience
        self._client = HttpClient(at_once=2)  # the second, where a resolver still keeps the first
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._changing = threading.Lock()
        self._in_hand: set[UUID] = set()
        self._thread: threading.Thread | None = None

    def submit(self, tellings: Sequence[Telling]) -> None:
        """Take these on, those apart that are in hand already; answers at once."""
        with self._changing:
            new = [telling for telling in tellings if telling.event.id not in self._in_hand]
            if not new or self._closed.is_set():
                return
            self._in_hand.update(telling.event.id for telling in new)
            self._orders.put(_Order(new, time.monotonic() + self._patience))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"tell {self._sink.name}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the request under way; what was not told is due again. May be repeated."""
        with self._changing:
            self._closed.set()
        self._client.close()
        self._orders.put(None)
        if self._thread is not None:
            self._thread.join(_STOP_WITHIN)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            self._carry_out([order])

    def _carry_out(self, orders: list[_Order]) -> None:
        try:
            (order,) = orders
            if not self._tell(order):
                orders += self._rest()  # the sink is away: a request for each would take a timeout each
                for one in orders[1:]:
                    give_back(self._terms, self._sink.name, one.tellings)
        except SQLAlchemyError as error:
            log.warning("alert outcome not recorded", sink=self._sink.name, error=type(error).__name__)
        finally:
            with self._changing:
                self._in_hand.difference_update(one.event.id for each in orders for one in each.tellings)

    def _tell(self, order: _Order) -> bool:
        return tell(
            self._sink.name,
            order.tellings,
            self._send,
            self._terms,
            until=order.until,
            stopping=self._closed.is_set,
        )

    def _send(self, events: Sequence[QuarantinedEvent]) -> None:
        self._sink.send(events, self._terms.clock(), self._client)

    def _rest(self) -> list[_Order]:
        waiting: list[_Order] = []
        while True:
            try:
                one = self._orders.get_nowait()
            except queue.Empty:
                return waiting
            if one is None:
                self._orders.put(None)
                return waiting
            waiting.append(one)


class Tellers:
    """The tellers of a process, one for each sink that is configured."""

    def __init__(self, sinks: Sequence[Sink], terms: Terms, patience: float) -> None:
        make = partial(Teller, terms=terms, patience=patience)
        self._tellers = {sink.name: make(sink) for sink in sinks}

    @property
    def sinks(self) -> tuple[str, ...]:
        """The names of the configured sinks, the log not among them."""
        return tuple(self._tellers)

    def submit(self, sink: str, tellings: Sequence[Telling]) -> bool:
        """Hand them to the sink's teller. False where that sink is not configured here."""
        teller = self._tellers.get(sink)
        if teller is not None:
            teller.submit(tellings)
        return teller is not None

    def close(self) -> None:
        """Close them all."""
        for teller in self._tellers.values():
            teller.close()
