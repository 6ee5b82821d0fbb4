"""`decide` against the lifecycle table: every status, version, verdict, budget and kind of intent."""

import itertools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pin.rules.outbox import (
    Entry,
    ErrorClass,
    Outcome,
    OutcomeKind,
    Reply,
    Status,
    Verdict,
    decide,
    ends_pass,
)
from tests.unit.entries import DEFAULT, NOW, entry

_LATE, _SUCCEEDED = OutcomeKind.LATE, OutcomeKind.SUCCEEDED
_RETRIED, _QUARANTINED = OutcomeKind.RETRIED, OutcomeKind.QUARANTINED
_ATTEMPTS = (0, 1, 11, 12, 13)
_FAILURES = [verdict for verdict in Verdict if verdict is not Verdict.DETACHED]

# Of a failure of the current version while Pending: what becomes of the entry after 0, 1, 11, 12 and 13 attempts.
_SPENDS_BUDGET = (_RETRIED, _RETRIED, _RETRIED, _QUARANTINED, _QUARANTINED)
_PERMANENT = (_RETRIED, _QUARANTINED, _QUARANTINED, _QUARANTINED, _QUARANTINED)
_UNCALLED = (_LATE, *[OutcomeKind.NOT_CALLED] * 4)
_GUARDS_END = (_SUCCEEDED,) * 5
_CURRENT_FAILURE = {
    (Verdict.TRANSIENT, False): _SPENDS_BUDGET,
    (Verdict.TRANSIENT, True): _SPENDS_BUDGET,
    (Verdict.REFUSED, False): _SPENDS_BUDGET,
    (Verdict.REFUSED, True): _SPENDS_BUDGET,
    (Verdict.NOT_FOUND, False): _PERMANENT,
    (Verdict.NOT_FOUND, True): _GUARDS_END,
    (Verdict.INVALID, False): _PERMANENT,
    (Verdict.INVALID, True): _PERMANENT,
    (Verdict.NOT_CALLED, False): _UNCALLED,
    (Verdict.NOT_CALLED, True): _UNCALLED,
}


def _expected(status: Status, version: int, verdict: Verdict, attempts: int, *, is_guard: bool) -> OutcomeKind:
    if verdict is Verdict.DETACHED:
        return _LATE if status is Status.DONE else _SUCCEEDED
    if status is not Status.PENDING or version != 7:
        return _LATE
    return _CURRENT_FAILURE[verdict, is_guard][_ATTEMPTS.index(attempts)]


@pytest.mark.req("J9", "J13", "J14", "J15", "J16", "G3", "G9")
@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("status", Status)
def test_the_lifecycle_table(status: Status, verdict: Verdict) -> None:
    reply = Reply(verdict, "HTTP 500")
    for version, attempts, is_guard in itertools.product((6, 7, 8), _ATTEMPTS, (False, True)):
        standing = entry(status=status, version=7, attempts=attempts, is_guard=is_guard)
        expected = _expected(status, version, verdict, attempts, is_guard=is_guard)
        assert decide(standing, version, reply, NOW, DEFAULT).kind is expected, (version, attempts, is_guard)


_texts = st.text() | st.sampled_from(["a\x00b", "a\ud800b", "a" * 513, "\N{GRINNING FACE}" * 512])
_replies = st.builds(
    Reply,
    st.sampled_from(Verdict),
    st.none() | _texts,
    retry_after=st.none() | st.timedeltas(),
)
_entries = st.builds(
    lambda status, attempts, version, is_guard: entry(
        status=status, attempts=attempts, version=version, is_guard=is_guard
    ),
    st.sampled_from([*Status, "Foreseen"]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 3),
    st.booleans(),
)


@pytest.mark.req("J9", "G9")
@pytest.mark.case("A14")
@given(_entries, st.integers(0, 3), _replies)
def test_done_is_terminal(standing: Entry, version: int, reply: Reply) -> None:
    done = entry(status=Status.DONE, attempts=standing.attempts, version=standing.version, is_guard=standing.is_guard)
    assert decide(done, version, reply, NOW, DEFAULT).kind is _LATE


@pytest.mark.req("J16", "G9")
@pytest.mark.case("A14")
@given(_entries, st.integers(0, 3), _replies.filter(lambda reply: reply.verdict is not Verdict.DETACHED))
def test_a_failure_of_an_older_version_changes_nothing(standing: Entry, version: int, reply: Reply) -> None:
    if version != standing.version:
        assert decide(standing, version, reply, NOW, DEFAULT).kind is _LATE


@pytest.mark.req("J13", "G9")
@given(_entries, st.integers(0, 3))
def test_a_success_is_the_truth_whenever_it_arrives(standing: Entry, version: int) -> None:
    outcome = decide(standing, version, Reply(Verdict.DETACHED), NOW, DEFAULT)
    assert outcome == Outcome(_LATE if standing.status == Status.DONE else _SUCCEEDED)


@pytest.mark.req("J19")
@given(_replies.filter(lambda reply: reply.verdict is not Verdict.NOT_CALLED))
def test_a_first_synchronous_attempt_never_quarantines_and_moves_no_due_time(reply: Reply) -> None:
    outcome = decide(entry(attempts=0, version=0), 0, reply, NOW, DEFAULT)
    assert outcome.kind in {_SUCCEEDED, _RETRIED}
    assert outcome.not_before is None


@pytest.mark.req("J14")
@pytest.mark.case("A1")
@given(_entries, st.integers(0, 3), _replies)
def test_whatever_the_reply_said_the_error_fits_its_column(standing: Entry, version: int, reply: Reply) -> None:
    error = decide(standing, version, reply, NOW, DEFAULT).error
    if error is not None:
        assert len(error) <= 512
        assert error.isascii()
        assert error.isprintable()


@pytest.mark.req("G17")
@pytest.mark.case("A7")
@given(st.integers(1, 11), st.timedeltas())
def test_retry_after_is_later_than_now_and_at_most_the_cap_away(attempts: int, wait: timedelta) -> None:
    reply = Reply(Verdict.TRANSIENT, "HTTP 503", 503, wait)
    outcome = decide(entry(attempts=attempts), 1, reply, NOW, DEFAULT)
    assert outcome.kind is _RETRIED
    if wait <= timedelta(0):
        assert outcome.not_before is None
    else:
        assert outcome.not_before == NOW + min(wait, DEFAULT.backoff_cap)


@pytest.mark.req("G3", "G13")
def test_a_guard_that_meets_404_is_done_without_an_error() -> None:
    reply = Reply(Verdict.NOT_FOUND, "HTTP 404 SELECTIONS_SNAPSHOT_NOT_FOUND", 404)
    assert decide(entry(is_guard=True), 1, reply, NOW, DEFAULT) == Outcome(_SUCCEEDED)


@pytest.mark.req("G7")
def test_the_one_call_more_after_a_lost_outcome_quarantines_when_it_fails() -> None:
    reply = Reply(Verdict.TRANSIENT, ErrorClass.TIMEOUT)
    outcome = decide(entry(attempts=13), 1, reply, NOW, DEFAULT)
    assert outcome == Outcome(_QUARANTINED, "TIMEOUT")


@pytest.mark.req("G3")
@pytest.mark.parametrize("verdict", Verdict)
def test_only_a_refused_credential_ends_the_pass(verdict: Verdict) -> None:
    fine = Reply(Verdict.DETACHED)
    expected = "HTTP 401" if verdict is Verdict.REFUSED else None
    assert ends_pass([fine, Reply(verdict, "HTTP 401"), fine]) == expected


def test_every_failure_is_in_the_table() -> None:
    assert {verdict for verdict, _ in _CURRENT_FAILURE} == set(_FAILURES)
