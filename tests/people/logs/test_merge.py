"""Lines of several sources, by their time, with a bounded wait."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob.logs.lines import NANOSECONDS
from pytorchjob.logs.merge import Merger

WAIT = 0.3
FOREVER = float("inf")


def merger(*sources: str, wait: float = WAIT, limit: int = 10_000) -> Merger[str]:
    made = Merger[str](wait, limit)
    for source in sources:
        made.add(source)
    return made


def test_lines_come_by_their_time() -> None:
    merged = merger("a", "b")
    merged.put("a", 2, "a2", 0)
    merged.put("b", 1, "b1", 0)
    merged.put("b", 3, "b3", 0)
    assert merged.take(0) == ["b1", "a2"]


def test_a_line_waits_for_a_source_that_has_none() -> None:
    merged = merger("a", "b")
    merged.put("a", 2, "a2", now=10)
    assert (merged.take(10), merged.due(10)) == ([], pytest.approx(WAIT))
    merged.put("b", 1, "b1", now=10.1)
    assert merged.take(10.1) == ["b1"]


def test_a_line_waits_no_longer_than_that() -> None:
    merged = merger("a", "b")
    merged.put("a", 2, "a2", now=10)
    assert merged.take(10 + WAIT) == ["a2"]


def test_old_lines_do_not_wait_for_a_silent_source() -> None:
    merged = merger("a", "b")
    merged.put("a", 0, "old", now=10)
    merged.put("a", 5 * NANOSECONDS, "new", now=10)
    assert merged.take(10) == ["old"]


def test_a_half_full_queue_does_not_wait() -> None:
    merged = merger("a", "b", limit=2000)
    merged.put("a", 1, "long", now=10, size=1500)
    assert merged.take(10) == ["long"]


def test_nothing_waits_for_a_closed_source() -> None:
    merged = merger("a", "b")
    merged.put("a", 2, "a2", now=10)
    merged.close("b")
    assert merged.take(10) == ["a2"]


def test_all_wait_for_a_source_that_opens() -> None:
    merged = merger("a")
    merged.add("b", opens_until=13)
    merged.put("a", 0, "old", now=10)
    merged.put("a", 5 * NANOSECONDS, "new", now=10)
    assert merged.take(12) == []
    merged.ready("b")
    assert merged.take(12) == ["old", "new"]


def test_a_source_that_never_opens_is_waited_for_until_its_time() -> None:
    merged = merger("a")
    merged.add("b", opens_until=13)
    merged.put("a", 1, "a1", now=10)
    assert merged.due(10) == 3
    assert merged.take(13) == ["a1"]


def test_a_full_queue_is_full_until_a_line_is_taken() -> None:
    merged = merger("a", limit=1000)
    merged.put("a", 1, "a1", now=0, size=900)
    full = merged.is_full("a")
    merged.take(0)
    assert (full, merged.is_full("a")) == (True, False)


def test_it_is_over_when_all_is_closed_and_taken() -> None:
    merged = merger("a")
    merged.put("a", 1, "a1", now=0)
    merged.close("a")
    merged.close("a")
    before = merged.is_over
    assert (before, merged.take(0), merged.is_over, merged.is_empty) == (False, ["a1"], True, True)


LINES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=60)


@given(LINES)
def test_with_all_the_time_lines_are_sorted(lines: list[tuple[str, int]]) -> None:
    merged, lines = merger("a", "b", "c", wait=FOREVER), sorted(lines, key=lambda line: line[1])
    for number, (source, at) in enumerate(lines):
        merged.put(source, at, f"{at:02d} {source} {number:02d}", now=0)
    for source in "abc":
        merged.close(source)
    taken = merged.take(0)
    assert [line[:2] for line in taken] == [f"{at:02d}" for _, at in lines]
    assert merged.is_over


@given(LINES, st.data())
def test_each_sources_lines_keep_their_order_and_all_come(lines: list[tuple[str, int]], data: Any) -> None:
    taken, now = list[tuple[str, int]](), 0.0
    merged = Merger[tuple[str, int]](WAIT, 1500)
    for source in "abc":
        merged.add(source)
    numbered = [(source, number) for number, (source, _) in enumerate(lines)]
    for (source, at), item in zip(lines, numbered, strict=True):
        merged.put(source, at * NANOSECONDS // 10, item, now)
        now += data.draw(st.sampled_from([0.0, 0.1, 0.5]))
        taken += merged.take(now, most=data.draw(st.integers(0, 3)))
    taken += merged.take(now + 2 * WAIT)
    for source in "abc":
        assert [item for item in taken if item[0] == source] == [item for item in numbered if item[0] == source]
