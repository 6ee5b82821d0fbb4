"""How a process ends that calls under load, and what a resolver that hangs costs it."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import waiting
from tests.fake_selections import FakeSelections

_ROOT = Path(__file__).parents[2]


def _child(way: str, url: str, *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-X", "dev", "-m", "tests.client.child", way, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )


@pytest.mark.req("J6")
@pytest.mark.case("A48", "A16")
@pytest.mark.parametrize("time_of_five", range(5))
def test_a_client_that_is_closed_under_load_stays_closed_and_ends_in_peace(time_of_five: int) -> None:
    with FakeSelections() as fake, _child("closed", fake.url) as child:
        fake.arrived(200 * (time_of_five + 1), within=30)
        said, _ = child.communicate("now\n", timeout=30)
    assert "after: {None} NETWORK [] [False, False, False, False]" in said
    assert child.returncode == 0


@pytest.mark.req("J6")
@pytest.mark.case("A48", "A16")
@pytest.mark.parametrize("time_of_five", range(5))
def test_a_process_that_ends_under_load_does_not_abort(time_of_five: int) -> None:
    with FakeSelections() as fake, _child("left", fake.url) as child:
        fake.arrived(200 * (time_of_five + 1), within=30)
        child.communicate("now\n", timeout=30)
    assert child.returncode == 0


def _may_have_namespaces() -> bool:
    known = shutil.which("unshare") is not None and shutil.which("ip") is not None
    return known and subprocess.run(["unshare", "-rmn", "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.req("J14")
@pytest.mark.case("A60", "A4")
@pytest.mark.skipif(
    not _may_have_namespaces(), reason="this machine allows no user namespaces: no resolver can be faked"
)
def test_a_resolver_that_hangs_delays_no_caller(tmp_path: Path) -> None:
    """The child's name server listens on a loopback of its own, and never answers."""
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:20 attempts:1\n")
    started = f'ip link set lo up && mount --bind {resolver} /etc/resolv.conf && exec "$@"'
    began = time.monotonic()
    with _child("resolving", "http://selections.example", "unshare", "-rmn", "sh", "-c", started, "sh") as child:
        detach = waiting.line(child, r"detach: (.*) ([\d.]+)$")
        sent = waiting.line(child, r"post: (\w+) ([\d.]+)$")
        close = waiting.line(child, r"close: ([\d.]+)$")
        child.communicate("", timeout=30)
    assert (detach[1], sent[1]) == ("{'TIMEOUT'}", "TIMEOUT")
    assert 0.9 <= float(detach[2]) < 3
    assert 0.4 <= float(sent[2]) < 2
    assert float(close[1]) < 6
    assert child.returncode == 0
    assert time.monotonic() - began < 15, "the process does not wait for the resolver either"
