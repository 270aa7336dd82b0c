"""Lines as the node gives them."""

from datetime import UTC, datetime

import pytest

from pytorchjob.logs.lines import Line, from_moment, is_whole, parse, to_moment

SECOND = from_moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    ("raw", "nanoseconds", "text"),
    [
        (b"2026-01-02T03:04:05.123456789Z step=1\n", 123456789, b"step=1"),
        (b"2026-01-02T03:04:05.5Z step=1\n", 500000000, b"step=1"),
        (b"2026-01-02T03:04:05Z step=1\n", 0, b"step=1"),
        (b"2026-01-02T05:04:05.000000001+02:00 step=1\n", 1, b"step=1"),
        (b"2026-01-02T03:04:05.1Z \n", 100000000, b""),
        (b"2026-01-02T03:04:05.1Z  two  spaces \r\n", 100000000, b" two  spaces \r"),
        (b"2026-01-02T03:04:05.1Z no end", 100000000, b"no end"),
    ],
)
def test_a_line_has_a_time_and_a_text(raw: bytes, nanoseconds: int, text: bytes) -> None:
    line = parse(raw)
    assert line == Line(SECOND + nanoseconds, raw.split(b" ")[0], text)


@pytest.mark.parametrize(
    "raw",
    [
        b"failed to watch file: too many open files\n",
        b"2026-01-02T03:04:05.12",
        b"2026-99-02T03:04:05Z x\n",
        b"\n",
        b"",
    ],
)
def test_what_has_no_time_is_no_line(raw: bytes) -> None:
    assert parse(raw) is None


def test_a_line_is_whole_with_its_end() -> None:
    assert (is_whole(b"x\n"), is_whole(b"x"), is_whole(b"")) == (True, False, False)


def test_a_request_has_whole_seconds() -> None:
    assert to_moment(SECOND + 999_999_999) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
