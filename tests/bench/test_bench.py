"""The bench's endpoint and arithmetic; its figures are `make bench`'s."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import httpx
import pytest

from bench.charts import draw
from bench.processes import cpu_seconds
from bench.ratios import CLIENT_LOOP, PG_BOSS, PLAIN_DRAMATIQ, PRODUCT, Sample, ratio, verdict
from bench.table import table
from bench.work import USER, EndpointControl, snapshot_ids
from pin.clock import utc_now
from pin.rules.contract import DETACH_PATH
from pin.rules.outbox import Verdict
from pin.rules.replies import read_detach_reply
from tests import waiting


@pytest.fixture
def endpoint() -> Iterator[EndpointControl]:
    command = [sys.executable, "-m", "bench.endpoint"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        control = EndpointControl(int(waiting.line(process, r"listening (\d+)")[1]), patience=20)
        yield control
        control.close()
        os.kill(process.pid, signal.SIGTERM)


@pytest.mark.parametrize("delay_ms", [0, 20])
def test_the_endpoint_answers_to_the_contract_and_counts(endpoint: EndpointControl, delay_ms: int) -> None:
    endpoint.reset(delay_ms)
    first, second = snapshot_ids(2)
    body = {"reason": "BlockReplaced", "requestedByUserId": str(USER)}
    with httpx.Client(base_url=endpoint.url) as client:
        for snapshot_id in (first, second, first):
            answer = client.post(DETACH_PATH.replace("{id}", str(snapshot_id)), json=body)
            media_type = answer.headers["content-type"]
            reply = read_detach_reply(snapshot_id, answer.status_code, media_type, answer.content, (), utc_now())
            assert reply.verdict is Verdict.DETACHED
    endpoint.wait(answered=3)
    tally = endpoint.tally()
    assert (tally["calls"], tally["answered"], tally["distinct"]) == (3, 3, 2)
    endpoint.reset(delay_ms)
    assert endpoint.tally()["distinct"] == 0


def test_the_endpoint_puts_requests_together_again(endpoint: EndpointControl) -> None:
    (snapshot_id,) = snapshot_ids(1)
    request = (
        f"POST {DETACH_PATH.replace('{id}', str(snapshot_id))} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello".encode()
    )
    with socket.create_connection(("127.0.0.1", httpx.URL(endpoint.url).port or 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            connection.sendall(bytes([byte]))
        connection.sendall(request + request)
        endpoint.wait(answered=3)
    assert endpoint.tally()["calls"] == 3


def _samples(*rates: tuple[str, int, int, float]) -> list[Sample]:
    return [Sample(system, number, delay, rate, cpu=0.1) for system, number, delay, rate in rates]


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    samples = _samples(
        (PRODUCT, 0, 0, 100.0),
        (CLIENT_LOOP, 0, 0, 50.0),
        (PRODUCT, 1, 0, 1000.0),
        (CLIENT_LOOP, 1, 0, 1000.0),
        (PRODUCT, 2, 0, 90.0),
        (CLIENT_LOOP, 2, 0, 30.0),
        (PRODUCT, 2, 20, 7.0),
    )
    assert ratio(samples, PRODUCT, CLIENT_LOOP, 0) == 2.0
    with pytest.raises(ValueError, match="no round has both"):
        ratio(samples, PRODUCT, CLIENT_LOOP, 20)


@pytest.mark.parametrize(("rate", "reached"), [(150.0, True), (149.0, False)])
def test_the_last_lines_name_the_bounds_and_what_is_below(rate: float, reached: bool) -> None:
    samples = _samples((PRODUCT, 0, 20, rate), (CLIENT_LOOP, 0, 20, 100.0), (PLAIN_DRAMATIQ, 0, 20, 10.0))
    said, ok = verdict(samples, [20])
    assert ok is reached
    assert said == [
        f"bench: product / one-client loop = {rate / 100:.2f} (bound 1.5) at 20 ms{'' if reached else ' BELOW'}",
        f"bench: product / plain dramatiq-pg = {rate / 10:.2f} (bound 15) at 20 ms{'' if reached else ' BELOW'}",
        "bench: CPU s a 1,000 calls = 0.1 (at most 0.16) at 20 ms",
    ]
    assert [line.split()[2] for line in table(samples, [20])[1:]] == ["product", "one-client", "plain"]


def test_a_peer_that_was_measured_has_its_bound_and_its_bar(tmp_path: Path) -> None:
    samples = _samples(
        (PRODUCT, 0, 20, 150.0), (CLIENT_LOOP, 0, 20, 100.0), (PLAIN_DRAMATIQ, 0, 20, 10.0), (PG_BOSS, 0, 20, 200.0)
    )
    said, reached = verdict(samples, [20])
    assert not reached
    assert "bench: product / pg-boss = 0.75 (bound 1) at 20 ms BELOW" in said
    assert not [line for line in said if "graphile" in line], "what is not there is not compared with"
    [picture] = draw(samples, [20], tmp_path)
    drawn = ET.fromstring(picture.read_text())  # noqa: S314 - our own
    names = [text.text for text in drawn if text.get("text-anchor") == "end"]
    assert names == [PG_BOSS, PRODUCT, CLIENT_LOOP, PLAIN_DRAMATIQ]


@pytest.mark.parametrize(
    ("wal", "control", "reached"), [(1000.0, 0.02, True), (1001.0, 0.02, False), (1000.0, 0.04, False)]
)
def test_what_the_product_may_cost_is_a_bound_as_well(wal: float, control: float, reached: bool) -> None:
    product = Sample(
        PRODUCT, 0, 0, 150.0, cpu=0.16, postgres_cpu=0.05, statements=0.09, transaction_control=control, wal_bytes=wal
    )
    said, ok = verdict([product, *_samples((CLIENT_LOOP, 0, 0, 100.0), (PLAIN_DRAMATIQ, 0, 0, 10.0))], [0])
    assert ok is reached
    assert bool([line for line in said if line.endswith("ABOVE")]) is not reached


def test_processor_time_counts_the_children() -> None:
    assert cpu_seconds([os.getppid()]) >= cpu_seconds([os.getpid()]) > 0
