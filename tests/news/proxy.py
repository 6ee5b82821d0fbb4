"""The way between news and selections, in the test's hands: it records what passes and does what networks do."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Passing = Callable[["Exchange"], None]


@dataclass
class Exchange:
    """One request on its way. `forward` asks selections; `answer` writes to news; neither need happen."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]
    _handler: "_Handler"

    def forward(self) -> tuple[int, str, bytes]:
        """What selections answers: status, content type, body."""
        target = urlsplit(self._handler.server.target)
        connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=10)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in {"host", "connection"}}
            connection.request(self.method, self.path, self.body or None, kept)
            reply = connection.getresponse()
            return reply.status, reply.headers.get("content-type", ""), reply.read()
        finally:
            connection.close()

    def answer(self, status: int, media_type: str = "application/json", body: bytes = b"{}") -> None:
        """Answer news and end the connection."""
        self._handler.send_response(status)
        self._handler.send_header("content-type", media_type)
        self._handler.send_header("content-length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def trickle(self) -> None:
        """Begin an answer and never end it: a byte of a header now and then, until the test is over (A4)."""
        self._handler.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
        try:
            while not self._handler.server.over.wait(0.05):
                self._handler.wfile.write(b"a")
        except OSError:
            return

    def hang(self) -> None:
        """Say nothing until the test is over."""
        self._handler.server.over.wait(30)


def passes(exchange: Exchange) -> None:
    """Forward the request, and the reply."""
    exchange.answer(*exchange.forward())


@dataclass
class Proxy:
    """`url` is what news takes for selections. `does` decides what becomes of each request."""

    url: str
    does: Passing = passes
    seen: list[str] = field(default_factory=list)

    def calls(self, method: str, ending: str = "") -> list[str]:
        """The paths seen so far for this method whose path ends so."""
        return [line.split(" ", 1)[1] for line in self.seen if line.startswith(method) and line.endswith(ending)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    target: str
    proxy: Proxy
    over: threading.Event

    def handle_error(self, request: Any, client_address: Any) -> None:
        """News has hung up: that is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.proxy.seen.append(f"{self.command} {self.path}")
        self.close_connection = True
        self.server.proxy.does(Exchange(self.command, self.path, body, dict(self.headers.items()), self))

    do_GET = do_POST = _serve  # noqa: N815 - the library finds a method by its name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Be silent."""


@contextmanager
def proxy_to(target: str) -> Iterator[Proxy]:
    """A proxy in front of the server at `target`, on a free port, passing everything until told otherwise."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.target, server.over = target, threading.Event()
    server.proxy = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
