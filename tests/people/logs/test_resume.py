"""Which lines of a later stream are new."""

import pytest

from pytorchjob.logs.lines import Line
from pytorchjob.logs.resume import Resume


def lines(text: str) -> list[Line]:
    """`1a 2b`: the line `a` at 1, then `b` at 2."""
    return [Line(int(word[0]), word[0].encode(), word[1:].encode()) for word in text.split()]


def taken(resume: Resume, text: str) -> str:
    """The lines of a stream that are new, in the notation of `lines`."""
    resume.begin()
    stream = resume.stream()
    return " ".join((line.stamp + line.text).decode() for line in lines(text) if stream.takes(line))


@pytest.mark.parametrize(
    ("first", "second", "new"),
    [
        pytest.param("1a 2b", "1a 2b 3c", "3c", id="known lines are left out"),
        pytest.param("1a 2b", "1a 2b 2c 3d", "2c 3d", id="a new line with the last timestamp"),
        pytest.param("2a 2b", "2a 2b 2c", "2c", id="several known lines with it"),
        pytest.param("2a 2a", "2a 2a 2a", "2a", id="the same text is counted"),
        pytest.param("2a 2b", "2b 2c 3d", "2c 3d", id="the first of them were rotated away"),
        pytest.param("2a", "2c 3d", "2c 3d", id="all of them were"),
        pytest.param("2a", "3b", "3b", id="nothing known is left"),
        pytest.param("1a 5b", "4x 5b 3c 4d", "3c 4d", id="the clock steps back after the last known line"),
        pytest.param("", "1a 2b", "1a 2b", id="the first stream"),
        pytest.param("3a 2b", "2b 4c 3d", "4c 3d", id="the clock steps back within a stream"),
        pytest.param("2a", "", "", id="an empty stream"),
    ],
)
def test_new_lines(first: str, second: str, new: str) -> None:
    resume = Resume()
    assert taken(resume, first) == first
    assert taken(resume, second) == new


def test_a_third_stream_knows_what_the_second_has_added() -> None:
    resume = Resume()
    assert [taken(resume, text) for text in ("2a", "2a 2b", "2a 2b 2c")] == ["2a", "2b", "2c"]


def test_nothing_before_the_floor() -> None:
    resume = Resume(floor=2)
    assert (resume.since, taken(resume, "1a 2b 3c"), resume.since) == (2, "2b 3c", 3)


def test_the_last_known_line_is_found_when_all_with_its_timestamp_are() -> None:
    resume = Resume()
    taken(resume, "2a 2b")
    assert [taken(resume, "2a") or resume.found, taken(resume, "2a 2b") or resume.found] == [False, True]


@pytest.mark.parametrize(("second", "ahead"), [("2a 3b", False), ("3b", True), ("1x 2a", False)])
def test_a_line_is_ahead_if_the_last_known_line_is_missing(second: str, ahead: bool) -> None:
    resume = Resume()
    taken(resume, "2a")
    resume.begin()
    stream, found = resume.stream(), []
    for line in lines(second):
        found.append(resume.is_ahead(line))
        stream.takes(line)
    assert any(found) is ahead


def test_a_gap_is_accepted_once_for_each_pass() -> None:
    resume = Resume()
    taken(resume, "2a")
    resume.begin()
    resume.accept_gap()
    assert not resume.is_ahead(lines("3b")[0])
