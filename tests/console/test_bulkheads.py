"""Strangers at the sign-in hold up neither the APIs nor the probes (A64)."""

import base64
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from pin.config.sections import OpsOptions
from tests.console.browsing import Visitor
from tests.serving import Keys, serving, settings_for
from tests.waiting import eventually
from web.app import create_app

STRANGERS = 24
_LANES = 15
"""scrypt's parallelism in the hash below: one look at it costs about fifteen times a usual one."""


@pytest.fixture
def url(database: str, keys: Keys, tmp_path: Path) -> Iterator[str]:
    """An app whose one operator has a password that is slow to check."""

    def text(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    salt = bytes(16)
    found = hashlib.scrypt(b"secret", salt=salt, n=2**15, r=8, p=_LANES, maxmem=2**28, dklen=32)
    operators = tmp_path / "operators"
    operators.write_text(f"slow:operator:scrypt.{2**15}.8.{_LANES}.{text(salt)}.{text(found)}\n", encoding="utf-8")
    operators.chmod(0o600)
    settings = settings_for(keys, database, contexts=("selections", "ops"), ops=OpsOptions(operators_file=operators))
    with serving(create_app(settings)) as serving_url:
        yield serving_url


@pytest.mark.case("A64")
def test_strangers_at_the_sign_in_hold_up_neither_the_api_nor_the_probes(url: str, keys: Keys) -> None:
    def stranger(_: int) -> int:
        with Visitor(url) as visitor:
            return visitor.sign_in("slow", "wrong").status_code

    with ThreadPoolExecutor(STRANGERS) as threads:
        under_way = [threads.submit(stranger, number) for number in range(STRANGERS)]
        eventually(lambda: any(one.done() for one in under_way))  # refused: as many as may wait are waiting
        headers = {"authorization": f"Bearer {keys.token(client='news')}"}
        answers = [
            httpx.get(f"{url}/api/v1/internal/snapshots/{uuid4()}", headers=headers, trust_env=False).status_code,
            httpx.get(f"{url}/health/ready", trust_env=False).status_code,
        ]
        looked_at = [one for one in under_way if one.done() and one.result() == 401]
    assert answers == [404, 200]
    assert looked_at == [], "both were answered before the first guess was over"
    assert {one.result() for one in under_way} <= {401, 429, 503}
