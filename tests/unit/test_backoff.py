from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pin.config.sections import SnapshotDetachRetryOptions
from pin.rules.outbox import JITTER, Policy
from tests.unit.entries import DEFAULT

_YEAR = timedelta(days=366)
_spans = st.timedeltas(min_value=timedelta(microseconds=1), max_value=_YEAR)
_numbers = st.sampled_from([30, 31, 62, 1023, 1100, 2147483646]) | st.integers(min_value=1, max_value=2**31 - 1)
_shares = st.floats(min_value=0, max_value=1)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any policy that the settings admit."""
    base, cap = sorted((draw(_spans), draw(_spans)))
    factor = draw(st.floats(min_value=1, max_value=100))
    return Policy(draw(st.integers(min_value=1, max_value=1000)), base, factor, cap)


@pytest.mark.req("J7", "J11")
def test_the_default_schedule_is_the_documents() -> None:
    minutes = [delay / timedelta(minutes=1) for delay in DEFAULT.schedule]
    assert minutes == [1, 2, 4, 8, 16, *[30] * 8]


@pytest.mark.req("J11")
@given(policies())
def test_the_schedule_grows_from_base_to_cap_and_never_beyond(policy: Policy) -> None:
    schedule = policy.schedule
    assert len(schedule) == policy.max_attempts + 1
    assert schedule[0] == policy.backoff_base
    assert list(schedule) == sorted(schedule)
    assert schedule[-1] <= policy.backoff_cap


@pytest.mark.req("J11")
@given(policies())
def test_each_wait_is_the_factor_times_the_one_before_until_the_cap(policy: Policy) -> None:
    for before, after in zip(policy.schedule, policy.schedule[1:], strict=False):
        exact = min(before * policy.backoff_factor, policy.backoff_cap)
        # Each delay is rounded to a microsecond, so the one before may be off by half of one.
        assert abs(after - exact) <= timedelta(microseconds=policy.backoff_factor) + exact * 1e-12


@pytest.mark.req("J11", "G17")
@pytest.mark.case("A2")
@given(policies(), _numbers, _shares)
def test_no_attempt_number_overflows_the_delay(policy: Policy, attempts: int, jitter: float) -> None:
    delay = policy.delay(attempts, jitter)
    assert policy.backoff_base <= delay <= policy.backoff_cap * (1 + JITTER)


@pytest.mark.req("J11")
@pytest.mark.case("A2")
@given(policies(), _numbers, _numbers)
def test_a_later_attempt_never_waits_less(policy: Policy, one: int, other: int) -> None:
    assert policy.delay(min(one, other)) <= policy.delay(max(one, other))


@pytest.mark.req("J11")
@pytest.mark.case("A2")
@pytest.mark.parametrize("attempts", [30, 31, 62, 1023, 1100, 2147483646])
def test_far_beyond_the_limit_the_delay_is_the_cap_with_jitter(attempts: int) -> None:
    assert DEFAULT.delay(attempts) == timedelta(minutes=30)
    assert DEFAULT.delay(attempts, 1.0) == timedelta(minutes=33)


@pytest.mark.req("G17")
@given(st.integers(min_value=1, max_value=13), _shares)
def test_jitter_adds_at_most_a_tenth_after_the_cap(attempts: int, jitter: float) -> None:
    bare = DEFAULT.delay(attempts)
    assert bare <= DEFAULT.delay(attempts, jitter) <= bare * (1 + JITTER)
    assert DEFAULT.delay(attempts, 1.0) == bare * (1 + JITTER)


@pytest.mark.req("G17")
@pytest.mark.parametrize(("outside", "inside"), [(-0.5, 0.0), (1.5, 1.0)])
def test_a_jitter_out_of_range_counts_as_its_nearest_bound(outside: float, inside: float) -> None:
    assert DEFAULT.delay(3, outside) == DEFAULT.delay(3, inside)


@pytest.mark.req("G19")
def test_the_default_window_is_the_sum_of_its_parts() -> None:
    options = SnapshotDetachRetryOptions()
    waits = (1 + 2 + 4 + 8 + 16 + 7 * 30) * 1.1  # minutes, with the greatest jitter
    window = DEFAULT.window(options.polling_interval, options.max_run_duration)
    assert window / timedelta(minutes=1) == pytest.approx(waits + 12 * 5 + 5 + 4)


@pytest.mark.req("G19")
@given(policies(), _spans, _spans)
def test_the_window_is_never_shorter_than_any_walk_through_the_schedule(
    policy: Policy, polling: timedelta, run: timedelta
) -> None:
    walked = sum((policy.delay(n, 1.0) + polling for n in range(1, policy.max_attempts + 1)), timedelta(0))
    assert policy.window(polling, run) == walked + polling + run
