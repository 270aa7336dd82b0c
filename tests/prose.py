"""The sentences of a page, for the tests of its English; `python -m tests.prose` lists those that are too long."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LONGEST = 25
"""Words that a sentence may have."""
_GENERATED = re.compile(
    r"<!-- begin: written by .*?<!-- end -->|<!-- begin: \S+, written by .*?<!-- end -->", re.DOTALL
)
_BLOCK = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_START = re.compile(r"^ *(?:[-*] |\d+\. |#+ |\|)|^$")
_END = re.compile(
    r"(?<=[.!?])[)*]*\s+(?=[A-Z*\"(X]|[\w/-]+\.md|benchmarks/|(?:torch|torchrun|kwok|kopf|kubectl|kind)\b)"
)


class Sentence(NamedTuple):
    """One sentence of a page, and the line on which its paragraph begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """How many words it has; code in backticks counts as one."""
        return len(re.findall(r"\w[\w'./:%-]*", self.text))


def pages() -> list[Path]:
    """Every page that people read, by its path."""
    chosen = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/README.md"),
        *ROOT.glob("benchmarks/**/*.md"),
    ]
    return sorted(chosen)


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """Remove what matches, and keep the numbers of the lines."""
    return pattern.sub(lambda found: "\n" * found[0].count("\n"), text)


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a page, without its blocks of code and generated tables; a table's cell is a text of its own."""
    for pattern in (_GENERATED, _BLOCK, _IMAGE):
        text = blanked(pattern, text)
    text = _CODE.sub("X", _LINK.sub(r"\1", text))
    for line, paragraph in _paragraphs(text):
        cells = paragraph.strip("|").split("|") if paragraph.startswith("|") else [paragraph]
        parts = [part for cell in cells for part in cell.split("<br>")]
        yield from (Sentence(line, found.strip()) for part in parts for found in _END.split(part))


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    begin, collected = 1, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if _START.match(line):
            yield begin, " ".join(collected)
            begin, collected = number, []
        collected.append(line.strip())
    yield begin, " ".join(collected)


def long_sentences(page: Path) -> list[str]:
    """The sentences of a page with more words than a sentence may have, each with its line and length."""
    found = [sentence for sentence in sentences(page.read_text()) if sentence.words > LONGEST]
    return [f"{page.relative_to(ROOT)}:{long.line}: {long.words} words: {long.text}" for long in found]


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
    lines = [line for page in chosen for line in long_sentences(page)]
    print(*lines, f"{len(lines)} sentences have more than {LONGEST} words", sep="\n")
