import io

import pytest

from pytorchjob_operator.local.screen import ProgressLine, Screen, duration


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
