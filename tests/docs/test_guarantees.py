"""docs/guarantees.md promises nothing that no test shows."""

import re

import pytest

from tests.docs.reading import DOCS, ROOT, page, rows

_NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.req("C2", "J33")
def test_every_promise_names_a_test_that_is_there() -> None:
    promised = [row for row in rows("guarantees.md") if len(row) == 3 and not row[0].startswith("`make")]
    assert len(promised) > 15
    for promise, _, shown_by in promised:
        assert _NAMED.search(shown_by), f"no test is named for: {promise}"
    for path, name in _NAMED.findall(page("guarantees.md")):
        assert (ROOT / path).is_file(), path
        assert not name or re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), name


@pytest.mark.req("C2")
def test_the_page_is_reached_from_the_others() -> None:
    linked = [path for path in (ROOT / "README.md", DOCS / "architecture.md") if "guarantees.md" in path.read_text()]
    assert linked
