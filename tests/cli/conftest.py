"""`pin` as its entry point runs it, in this process."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pin.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Pin = Callable[..., Ended]


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Pin:
    """`pin(*arguments, **settings)`: run in an empty folder, where no settings lie; stdin is no terminal."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **settings: str) -> Ended:
        with monkeypatch.context() as patched:
            for name, value in settings.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["pin", *arguments])
            with pytest.raises(SystemExit) as ended:
                main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run
