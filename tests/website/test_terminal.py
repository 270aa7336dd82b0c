"""A terminal shows what a program has written to it; a picture of it loads nothing."""

from xml.etree import ElementTree

import pytest

from website.pictures.drawing import draw
from website.pictures.terminal import Terminal


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        pytest.param("a\r\nb", ["a", "b"], id="lines"),
        pytest.param("10 %\r100 %", ["100 %"], id="a line that is written again"),
        pytest.param("long line\r\x1b[Kshort", ["short"], id="a line that is erased to its end"),
        pytest.param("bar\r\x1b[2Kdone", ["done"], id="a line that is erased"),
        pytest.param("one\r\ntwo\r\n\x1b[2Anew", ["new", "two", ""], id="a cursor that moves up"),
        pytest.param("ab\r\n\x1b[A\x1b[32mc\x1b[0m", ["cb", ""], id="a colour"),
        pytest.param("\x1b[?25lhidden cursor\x1b[?25h", ["hidden cursor"], id="a hidden cursor"),
        pytest.param("ab\r\n\x1b[A\x1b[Kc", ["c", ""], id="no column stays behind"),
    ],
)
def test_lines(written: str, lines: list[str]) -> None:
    whole, pieces = Terminal(), Terminal()
    whole.feed(written)
    for character in written:
        pieces.feed(character)
    assert whole.plain() == pieces.plain() == lines


def test_colours_stay_with_their_characters() -> None:
    terminal = Terminal()
    terminal.feed("\x1b[1m\x1b[31mred\x1b[0m plain")
    assert terminal.styled() == ["\x1b[1;31mred\x1b[0m plain"]


def test_a_picture_has_the_command_its_output_and_how_it_was_made() -> None:
    picture = draw("p", "pytorchjob status <job>", ["\x1b[1;31mred & bold\x1b[0m", "", "plain", "", ""], 40, "made now")
    root = ElementTree.fromstring(picture)
    found = (element for element in root.iter() if element.tag.endswith("text"))
    texts = ["".join(element.itertext()).replace("\xa0", " ") for element in found]
    assert [text for text in texts if text.strip()] == [
        "pytorchjob status <job>",
        "$ pytorchjob status <job>",
        "red & bold",
        "plain",
    ]
    assert "<desc>made now</desc>" in picture
    assert picture.count("http") == picture.count("http://www.w3.org/2000/svg")
    assert draw("p", "x", ["a", ""], 40, "") == draw("p", "x", ["a"], 40, "")
