"""What is wrong with a YAML text, in words for people, with line and column. Pure."""

import re
from typing import NamedTuple

from yaml.error import Mark
from yaml.reader import ReaderError


class Fault(NamedTuple):
    """One error of a YAML text; line and column count from 1, 0 where the parser names no place."""

    line: int
    column: int
    words: str

    def at(self, source: str) -> str:
        """Return the source with the place, as compilers write it."""
        return f"{source}:{self.line}:{self.column}" if self.line else source


class _Row(NamedTuple):
    problem: re.Pattern[str]
    words: str
    """`{0}` is the first group of the pattern."""
    at_start: bool = False
    """True if the place to name is the beginning of what the parser was reading."""


def _row(problem: str, words: str, at_start: bool = False) -> _Row:
    return _Row(re.compile(problem), words, at_start)


_TAB = "a tab cannot indent a line: use spaces"
_ROWS = (
    _row(r"found character '\\t'", _TAB),
    _row(r"found character ['\"](.+)['\"] that cannot start", "a value cannot begin with {0}: put it in quotes"),
    _row(r"could not find expected ':'", "this key has no colon after it: write `key: value`", True),
    _row(r"mapping values are not allowed", "a colon cannot stand here: check the indentation, or quote the value"),
    _row(r"sequence entries are not allowed", "a list cannot begin here: put its first - on a line of its own"),
    _row(r"mapping keys are not allowed", "a key cannot stand here: check the indentation"),
    _row(r"unexpected (?:end of stream|document separator)", "this quotation mark is never closed", True),
    _row(r"expected ',' or '(.)', but got '<stream end>'", "this bracket is never closed: {0} is missing", True),
    _row(r"expected ',' or '(.)', but got", "a comma or {0} is missing before this"),
    _row(r"node content, but found '<stream end>'", "the file ends inside a bracket: close it"),
    _row(r"node content, but found", "a value is missing here"),
    _row(r"expected <block end>", "this line is indented as no line above it: check the spaces before it"),
    _row(r"expected '<document start>'", "this does not belong to the text above: check indentation and brackets"),
    _row(r"undefined alias '(.+)'", "*{0} is used, but no &{0} comes before it: define it, or quote the value"),
    _row(r"constructor for the tag '(?:tag:yaml\.org,2002:)?(.+)'", "the tag {0} is not allowed: remove it"),
    _row(r"unknown escape character", "this backslash means nothing in double quotes: use single quotes"),
)


def explain(error: Exception, text: str) -> Fault:
    """Return the place and the words for an error of PyYAML, or of what it calls."""
    if isinstance(error, RecursionError):
        return Fault(0, 0, "it is nested too deeply")
    if isinstance(error, ReaderError):
        return _forbidden(error, text)
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None:
        return Fault(0, 0, str(error))
    row, found = _match(problem)
    if row is None or found is None:
        return _at(mark, ", ".join(filter(None, (getattr(error, "context", None), problem))))
    if mark is not None and _is_indented_by_tab(text, mark.line):
        return _at(mark, _TAB)
    start = getattr(error, "context_mark", None)
    return _at((start or mark) if row.at_start else mark, row.words.format(*found.groups()))


def _match(problem: str) -> tuple[_Row | None, re.Match[str] | None]:
    for row in _ROWS:
        found = row.problem.search(problem)
        if found:
            return row, found
    return None, None


def _at(mark: Mark | None, words: str) -> Fault:
    return Fault(mark.line + 1, mark.column + 1, words) if mark else Fault(0, 0, words)


def _is_indented_by_tab(text: str, line: int) -> bool:
    lines = text.split("\n")
    return line < len(lines) and "\t" in lines[line][: len(lines[line]) - len(lines[line].lstrip())]


def _forbidden(error: ReaderError, text: str) -> Fault:
    before = text[: error.position]
    code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
    words = f"the character U+{code:04X} is not allowed: remove it"
    return Fault(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1, words)
