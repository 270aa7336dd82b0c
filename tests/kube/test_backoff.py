"""Waits between attempts."""

from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.kube.backoff import Backoff


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_a_wait_is_never_longer_than_the_cap_nor_nothing(attempt: int, spread: float) -> None:
    assert 0.05 <= Backoff(0.1, 30.0, lambda: spread).delay(attempt) <= 30.0


def test_waits_double() -> None:
    backoff = Backoff(0.1, 1.0, lambda: 1.0)
    assert [backoff.delay(attempt) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_two_replicas_do_not_wait_equally_long() -> None:
    assert len({Backoff().delay(8) for _ in range(10)}) > 1
