import io

import pytest

from pytorchjob.local.screen import (
    MAX_LINE,
    LineBuffer,
    ProgressLine,
    Screen,
    duration,
    prefix,
    wants_colour,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(ready: int) -> ProgressLine:
    return ProgressLine("tiny", "Running", ready, 3, 1)


def test_progress_is_printed_when_it_changes_and_not_otherwise() -> None:
    err = io.StringIO()
    screen = Screen(io.StringIO(), err)
    for ready, elapsed in ((2, 1.0), (2, 2.0), (3, 3.0)):
        screen.progress(at(ready), elapsed)
    assert err.getvalue() == ("tiny: Running, 2/3 ready, 1 restart, 1 s\ntiny: Running, 3/3 ready, 1 restart, 3 s\n")


def test_steps_are_printed_now_and_then_where_lines_stay() -> None:
    err = io.StringIO()
    screen = Screen(io.StringIO(), err)
    for step, elapsed in ((1, 1.0), (2, 2.0), (3, 30.9), (4, 31.0), (5, 32.0)):
        screen.progress(ProgressLine("tiny", "Training", 3, 3, 0, f"step {step}", elapsed), elapsed)
    assert err.getvalue().splitlines() == [
        "tiny: Training, step 1, 3/3 ready, 0 restarts, 1 s",
        "tiny: Training, step 4, 3/3 ready, 0 restarts, 31 s",
    ]


def test_the_live_line_has_the_time_in_its_stage() -> None:
    err = Terminal()
    Screen(io.StringIO(), err).progress(ProgressLine("tiny", "Joining", 3, 3, 0, "", 4.2), 65.0)
    assert err.getvalue() == "\r\x1b[Ktiny: Joining 4 s, 3/3 ready, 0 restarts, 1 min 5 s"


def test_on_a_terminal_the_line_is_rewritten_and_gone_before_other_words() -> None:
    err = Terminal()
    screen = Screen(io.StringIO(), err)
    screen.progress(at(2), 1.0)
    screen.message("hello")
    screen.close()
    assert err.getvalue() == "\r\x1b[Ktiny: Running, 2/3 ready, 1 restart, 1 s\r\x1b[Khello\n"


def test_lines_of_replicas_go_to_the_other_stream() -> None:
    out, err = io.StringIO(), io.StringIO()
    Screen(out, err).log("worker-1", 2, "text")
    assert (out.getvalue(), err.getvalue()) == ("[worker-1] text\n", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        pytest.param(59.9, "59 s", id="seconds"),
        pytest.param(61, "1 min 1 s", id="minutes"),
        pytest.param(7260, "2 h 1 min", id="hours"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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
