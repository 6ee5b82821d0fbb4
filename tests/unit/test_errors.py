import pytest

from pin.rules.outbox import LAST_ERROR_LENGTH, ErrorClass, clean_error

_LONG = 513


@pytest.mark.req("J14")
@pytest.mark.case("A1")
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (None, None),
        ("HTTP 503", "HTTP 503"),
        (ErrorClass.TIMEOUT, "TIMEOUT"),
        ("a\x00b", "a?b"),
        ("a\ud800b", "a?b"),
        ("a" * _LONG, "a" * LAST_ERROR_LENGTH),
        ("\N{GRINNING FACE}" * LAST_ERROR_LENGTH, "?" * LAST_ERROR_LENGTH),
        ("\x1b]52;c;aGk=\x07", "?]52;c;aGk=?"),
        ("one\r\ntwo\x85\u2028", "one??two??"),
        ("", ""),
    ],
)
def test_an_error_is_cleaned_and_cut_to_its_column(said: str | None, kept: str | None) -> None:
    cleaned = clean_error(said)
    assert cleaned == kept
    if cleaned is not None:
        cleaned.encode("ascii")
