"""A process that has imported everything, has one thread, and forks a child for each order.

Started as `-m tests.faults.zygote FD`. An order arrives on the socket FD together with the child's end of a socket of
its own. On that the child says, one JSON object a line: `pid` first, `ready` (a URL) where it serves, `at` when it is
held at its border, then `done` or `failed`.
It hears `go` (the border is passed, and no other holds) and `finish` (end what you serve); its end ends the child.
"""

import json
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from typing import Any

from pin.telemetry.logs import configure_logging
from tests.faults import breakages, paths
from tests.faults.hook import Borders, install
from tests.faults.orders import Order, decode

_MESSAGE_BYTES = 65536


class Wire:
    """The child's end of its socket. A thread listens from `listen` on."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self.go = threading.Event()
        self.finish = threading.Event()

    def say(self, **words: Any) -> None:
        with self._lock:
            self._end.sendall(json.dumps(words).encode() + b"\n")

    def listen(self) -> None:
        def hear() -> None:
            for line in self._end.makefile():
                {"go": self.go, "finish": self.finish}[line.strip()].set()
            os._exit(3)  # the harness is gone

        threading.Thread(target=hear, name="harness", daemon=True).start()


def walk(order: Order, end: socket.socket) -> None:
    """In the child: walk the order's path, hooked; never returns."""
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    wire = Wire(end)
    wire.say(pid=os.getpid())
    wire.listen()
    configure_logging(log_format="json", level="info", process="faults")

    def told(number: int, border: str, sent: int) -> None:
        wire.say(at=number, border=border, sent=sent)

    borders = Borders(order.stop_at, order.named, told, wire.go.wait)
    try:
        if order.breakage:
            breakages.BREAKAGES[order.breakage](order)
        install(borders)
        walked = paths.PATHS[order.path](paths.Walk(order, borders, wire.finish, lambda url: wire.say(ready=url)))
        wire.say(done=borders.crossed, said=walked, kinds=sorted(borders.kinds))
    except BaseException:  # noqa: BLE001 - whatever ends the path is the harness's to judge
        wire.say(failed=traceback.format_exc())
    logging.shutdown()
    os._exit(0)


def main() -> None:
    """Fork a child an order until the harness closes the socket."""
    harness = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children that have ended leave nothing behind
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(harness, _MESSAGE_BYTES, 1)
        if not message:
            return
        if threading.active_count() != 1:
            raise RuntimeError("a process of several threads must not fork")
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            harness.close()
            walk(decode(message), socket.socket(fileno=fds[0]))
        os.close(fds[0])


if __name__ == "__main__":
    main()
