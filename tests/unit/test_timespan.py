from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pin.config.timespan import parse_timespan


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("00:05:00", timedelta(minutes=5)),
        ("0:05:00", timedelta(minutes=5)),
        ("1.00:00:00", timedelta(days=1)),
        ("00:00:01.5", timedelta(seconds=1.5)),
        ("PT5M", timedelta(minutes=5)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        (" 90s ", timedelta(seconds=90)),
        (timedelta(seconds=3), timedelta(seconds=3)),
    ],
)
def test_a_span_may_be_spelled(text: object, span: timedelta) -> None:
    assert parse_timespan(text) == span


@pytest.mark.req("J7")
@pytest.mark.parametrize(
    "text",
    [
        "5", "5.0", "", " ", "-5m", "-00:05:00", "5 m", "5M", "m", "P", "PT", "PT5", "00:60:00", "00:00:60", "00:5:00",
        "five", "5m x", "1e3s", None, 5,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_spellings(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not a span of time: use 00:05:00"):
        parse_timespan(text)


@pytest.mark.req("J7")
@pytest.mark.parametrize("text", ["05:00", "5:00", "90:00"])
def test_two_numbers_are_ambiguous(text: str) -> None:
    with pytest.raises(ValueError, match="is ambiguous"):
        parse_timespan(text)


@pytest.mark.req("J7")
@pytest.mark.parametrize("text", ["PT99999999999999H", f"{'9' * 400}d", f"{'9' * 12}.00:00:00", "999999999999d"])
def test_a_span_beyond_measure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="span of time"):
        parse_timespan(text)


@pytest.mark.req("J7")
@given(st.text() | st.from_regex(r"[0-9.:PTHMSDhmsd]{0,20}", fullmatch=True))
def test_no_text_does_worse_than_a_value_error(text: str) -> None:
    try:
        span = parse_timespan(text)
    except ValueError:
        return
    assert span >= timedelta(0)
