"""What the demo says while it runs: bars on a terminal, plain lines elsewhere. On stderr: stdout has the result."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Narrator:
    """Tells the story: what is said, and steps that advance."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def say(self, line: str) -> None:
        """One line."""
        self._console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A step under way; the block gets a function that takes how much of `total` is done by now. Any thread."""
        began = time.monotonic()
        reached = 0

        def note(done: int) -> None:
            nonlocal reached
            reached = done

        if not self._console.is_terminal:
            yield note
        else:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            with Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True) as bars:
                task = bars.add_task(what, total=total)

                def draw(done: int) -> None:
                    note(done)
                    bars.update(task, completed=done)

                yield draw
        count = "" if total is None else f" {reached} of {total},"
        self.say(f"  {what}:{count} {time.monotonic() - began:.1f} s")
