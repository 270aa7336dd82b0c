import io

import pytest

from pytorchjob_operator.local.screen import MAX_LINE, LineBuffer, prefix, wants_colour


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param([b"one\ntw", b"o\n"], ["one", "two"], id="a line may come in pieces"),
        pytest.param([b"10%\r20%\r"], ["10%", "20%"], id="a progress bar's return ends a line"),
        pytest.param([b"a\r", b"\nb\n"], ["a", "b"], id="an end of line that was cut in two is one"),
        pytest.param([b"a\n\nb\n"], ["a", "", "b"], id="an empty line is a line"),
        pytest.param([b"\xff\n"], ["\ufffd"], id="what is no UTF-8 is shown as such"),
        pytest.param([b"x" * (MAX_LINE + 1) + b"\n"], ["x" * MAX_LINE, "x"], id="a long line is cut"),
        pytest.param([b"x" * MAX_LINE, b"y"], ["x" * MAX_LINE], id="also one that does not end"),
    ],
)
def test_bytes_become_lines(chunks: list[bytes], lines: list[str]) -> None:
    buffer = LineBuffer()
    assert [line for chunk in chunks for line in buffer.feed(chunk)] == lines


def test_what_is_left_is_shown_at_the_end() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"no newline") == []
    assert (buffer.flush(), buffer.flush()) == (["no newline"], [])


def test_a_prefix_is_coloured_on_a_terminal_only() -> None:
    assert prefix("worker-0", colour=None) == "[worker-0] "
    assert prefix("worker-0", colour=1) == "\x1b[32m[worker-0]\x1b[0m "
    assert not wants_colour(io.StringIO(), None)
