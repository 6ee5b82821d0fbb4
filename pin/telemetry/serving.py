"""`/metrics`, `/health/live` and `/health/ready` of the processes that serve nothing else: scheduler and worker.

A small HTTP server in daemon threads; loopback unless the settings say otherwise. The web process serves its own.
"""

import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from prometheus_client import CONTENT_TYPE_LATEST

_CLIENT_PATIENCE = 5.0
"""Seconds that a client may be silent."""

Check = Callable[[], str | None]
"""None when all is well, otherwise what is not, in words that hold no secret."""


@dataclass(frozen=True, slots=True)
class Probes:
    """What the server answers with. Each is asked once a request, in a thread of the server."""

    live: Check
    ready: Check
    exposition: Callable[[], bytes]


class TelemetryServer:
    """`with TelemetryServer(host, port, probes) as server:`; port 0 takes a free one.

    Raises OSError from the start where the port cannot be had.
    """

    def __init__(self, host: str, port: int, probes: Probes) -> None:
        self._address = (host, port)
        self._probes = probes
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        """The port it listens on. Raises RuntimeError before the start."""
        if self._server is None:
            raise RuntimeError("the server was not started")
        return int(self._server.server_address[1])

    def start(self) -> Self:
        """Listen, and answer from now on."""
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        kind = type("_Server", (_Server,), {"address_family": family})
        self._server = kind(self._address, type("_Handler", (_Handler,), {"probes": self._probes}))
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="telemetry", daemon=True
        ).start()
        return self

    def stop(self) -> None:
        """Listen no more; what is being answered is answered."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    probes: Probes
    timeout = _CLIENT_PATIENCE
    server_version = "pin"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, self.probes.exposition())
        elif path == "/health/live":
            self._health(self.probes.live)
        elif path == "/health/ready":
            self._health(self.probes.ready)
        else:
            self._answer(404, "application/json", b'{"status":"not found"}')

    def _health(self, check: Check) -> None:
        try:
            fault = check()
        except Exception as error:  # noqa: BLE001 - a probe that cannot be answered well is answered, by its class
            fault = type(error).__name__
        body = {"status": "ok"} if fault is None else {"status": "fault", "detail": fault}
        self._answer(200 if fault is None else 503, "application/json", json.dumps(body).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """A probe every few seconds is no news."""
        del format, args
