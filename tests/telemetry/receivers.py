"""Receivers of what the product sends out: spans by OTLP, alerts by POST. Real HTTP servers of the test's own."""

import gzip
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Posted:
    """One POST as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """`with Receiver() as receiver:` takes POSTs at `receiver.url`; `status` is what it answers.

    A `hold` that is not set yet keeps every answer back. `judge` answers a status for a body, before `status` does.
    """

    def __init__(self, status: int = 200, judge: Callable[[bytes], int | None] = lambda _: None) -> None:
        self.status = status
        self.judge = judge
        self.posted: list[Posted] = []
        self.hold = threading.Event()
        self.hold.set()
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                receiver.posted.append(Posted(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                receiver.hold.wait(60)
                self.send_response(receiver.judge(body) or receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                del format, args

        server = self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.hold.set()
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, its ids in hex."""

    service: str
    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    text: str


class OtlpReceiver(Receiver):
    """Decodes what is posted to /v1/traces."""

    def spans(self, wanted: Callable[[ReceivedSpan], bool] = lambda _: True) -> list[ReceivedSpan]:
        """The spans received so far."""
        found: list[ReceivedSpan] = []
        for posted in list(self.posted):
            assert posted.path == "/v1/traces"
            packed = posted.headers.get("content-encoding") == "gzip"
            request = ExportTraceServiceRequest.FromString(gzip.decompress(posted.body) if packed else posted.body)
            for resource in request.resource_spans:
                service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
                for scope in resource.scope_spans:
                    found += [
                        ReceivedSpan(
                            service,
                            span.name,
                            span.kind,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            {a.key: a.value.string_value or a.value.int_value for a in span.attributes},
                            str(span),
                        )
                        for span in scope.spans
                    ]
        return [span for span in found if wanted(span)]
