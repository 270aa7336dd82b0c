"""Which ranks are slower than the others, from window to window."""

import random
from collections.abc import Iterator, Sequence

import pytest

from pytorchjob_operator.rounds.slow_ranks import COMPARISONS, WARM_UP, RoundTimes, Window, Worker, add, compare

HOUR = 3600 // 4
"""Windows of an hour."""


def follow(windows: Iterator[Sequence[float]] | Sequence[Sequence[float]], first: int = WARM_UP + 1) -> list[set[int]]:
    """The slow members after each round of windows; one worker each."""
    known, seen = RoundTimes(), []
    for number, shares in enumerate(windows, first):
        for index, share in enumerate(shares):
            known = add(known, {(index, 0): Window(number, share)}, len(shares), 4.0 * number)
        seen.append({index for index, _ in known.slow})
    return seen


EQUAL, LAST_SLOW = (0.7, 0.7, 0.7), (0.7, 0.7, 0.9)


@pytest.mark.parametrize(
    ("windows", "slow"),
    [
        pytest.param([EQUAL] * 8, set(), id="equal ranks"),
        pytest.param([LAST_SLOW] * 3, set(), id="three slow windows are too few"),
        pytest.param([LAST_SLOW] * 4, {2}, id="four slow windows"),
        pytest.param([*[EQUAL] * 6, *[LAST_SLOW] * 4], {2}, id="a rank that becomes slow"),
        pytest.param([*[LAST_SLOW] * 4, *[EQUAL] * 4], set(), id="a rank that is fast again"),
        pytest.param([*[LAST_SLOW] * 4, *[(0.7, 0.7, 0.8)] * 8], {2}, id="a slow rank that is 14 % slower stays slow"),
        pytest.param([(0.7, 0.7, 0.8)] * 8, set(), id="14 % slower"),
        pytest.param([(0.7, 0.7, 0.85)] * 8, {2}, id="21 % slower"),
        pytest.param([EQUAL, (0.2, 0.2, 1.0), EQUAL, EQUAL, EQUAL] * 4, set(), id="a save now and then"),
        pytest.param([(0.2, 0.2, 1.0), EQUAL] * 8, set(), id="a save in every second window"),
        pytest.param([(0.7, 0.9)] * 4, {1}, id="the slower rank of two"),
        pytest.param([(0.7, 0.7, 0.9, 0.9, 0.7)] * 4, {2, 3}, id="two slow ranks of five"),
        pytest.param([(0.7, 0.9, 0.9, 0.9)] * 4, set(), id="most ranks are equally slow"),
        pytest.param([(0.02, 0.02, 0.04)] * 8, set(), id="own time that costs 2 % of the wall clock"),
        pytest.param([(0.0, 0.0, 0.5)] * 4, {2}, id="ranks without own time"),
        pytest.param([(0.9,)] * 8, set(), id="a single rank"),
    ],
)
def test_a_rank_is_slow_if_it_stays_slow(windows: list[tuple[float, ...]], slow: set[int]) -> None:
    assert follow(windows)[-1] == slow


def test_the_first_steps_name_no_rank() -> None:
    compiles = (0.1, 0.1, 1.0)
    assert follow([compiles, *[LAST_SLOW] * 3, EQUAL], first=1)[-1] == set()


def test_a_rank_with_a_long_warm_up_is_not_named_once_most_windows_are_equal() -> None:
    seen = follow([*[(0.1, 0.1, 1.0)] * 5, *[EQUAL] * 3], first=1)
    assert ({2} in seen, seen[-1]) == (True, set())


def test_a_window_that_is_reported_again_counts_once() -> None:
    known = RoundTimes()
    for _ in range(8):
        for index, share in enumerate(LAST_SLOW):
            known = add(known, {(index, 0): Window(2, share)}, 3, 1.0)
    assert (len(known.lags), known.known) == (1, False)


def test_without_a_window_of_each_rank_nothing_is_compared() -> None:
    known = RoundTimes()
    for number in range(8):
        known = add(known, {(0, 0): Window(number, 0.9), (0, 1): Window(number, 0.5)}, 3, 1.0)
    assert known.lags == ()


def test_a_slow_rank_keeps_the_time_at_which_it_was_found() -> None:
    known = RoundTimes()
    for number in range(1, 9):
        for index, share in enumerate(LAST_SLOW):
            known = add(known, {(index, 0): Window(WARM_UP + number, share)}, 3, float(number))
    assert (known.slow, known.percent((2, 0))) == ({(2, 0): float(COMPARISONS)}, 29)


@pytest.mark.parametrize(
    ("shares", "excess"),
    [
        ([0.5, 0.75], [-33, 50]),
        ([0.5, 0.5, 0.75], [-20, -20, 50]),
        ([0.4, 0.5, 0.6, 0.75], [-33, -17, 20, 50]),
    ],
)
def test_each_rank_is_compared_with_the_median_of_the_others(shares: list[float], excess: list[int]) -> None:
    workers: dict[Worker, float] = {(index, 0): share for index, share in enumerate(shares)}
    assert [round(100 * lag.excess) for lag in compare(workers).values()] == excess


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_noise_of_5_percent_names_no_rank_in_an_hour(ranks: int) -> None:
    noise = random.Random(ranks)
    windows = ([min(max(noise.gauss(0.7, 0.035), 0.0), 1.0) for _ in range(ranks)] for _ in range(HOUR))
    assert not any(follow(windows))


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_single_slow_windows_of_any_rank_name_no_rank_in_an_hour(ranks: int) -> None:
    noise = random.Random(ranks)

    def windows() -> Iterator[list[float]]:
        for number in range(HOUR):
            shares = [noise.gauss(0.6, 0.02) for _ in range(ranks)]
            if number % 3 == 0:
                shares[noise.randrange(ranks)] = 1.0
            yield shares

    assert not any(follow(windows()))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_is_a_third_slower_is_named_within_30_seconds(ranks: int, seed: int) -> None:
    noise = random.Random(100 * ranks + seed)
    slow = noise.randrange(ranks)

    def windows() -> Iterator[list[float]]:
        for number in range(13):
            shares = [noise.gauss(0.6, 0.02) for _ in range(ranks)]
            shares[slow] *= 4 / 3 if number >= 6 else 1
            yield shares

    seen = follow(windows())
    assert seen[5] == set()
    assert seen[12] == {slow}  # the seventh window ends 28 s after the rank became slow
