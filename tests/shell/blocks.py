"""The shell blocks of all pages: what a reader is asked to type."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_PARTS = re.compile(
    r"^#+ (?P<heading>[^\n]*)$|^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_SHELL = ("sh", "bash", "shell", "console")


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    heading: str
    """The nearest one above; empty if there is none."""
    index: int
    """Its place among the shell blocks below this heading, from 0."""
    language: str
    text: str

    @property
    def key(self) -> str:
        """What names it in the register: stable while other parts of the page change."""
        return f"{self.page}: {self.heading}" + (f" ({self.index + 1})" if self.index else "")

    @property
    def first_line(self) -> str:
        """Its first command, without the comment behind it."""
        lines = [line for line in self.text.splitlines() if line and not line.startswith("#")]
        return re.split(r" {2,}#", lines[0])[0].strip()


def pages() -> list[str]:
    """Every page that asks a reader to type something, README first."""
    found = [
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*/*.md"),
        *ROOT.glob("benchmarks/**/*.md"),
        *ROOT.glob("tests/**/*.md"),
    ]
    names = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "SUPPORT.md", "ARCHITECTURE.md", "examples/README.md"]
    return [*names, "charts/pytorchjob-operator/README.md", *sorted(str(page.relative_to(ROOT)) for page in found)]


def fenced(page: str, text: str) -> Iterator[Block]:
    """All fenced blocks of a page, of every language, in order."""
    heading, seen = "", Counter[str]()
    for found in _PARTS.finditer(text):
        if found["text"] is None:
            heading = found["heading"].strip()
            continue
        shell = found["language"] in _SHELL
        lines = [line.removeprefix(found["indent"]) for line in found["text"].splitlines(keepends=True)]
        yield Block(page, heading, seen[heading], found["language"], "".join(lines))
        seen[heading] += shell


def shell(page: str) -> list[Block]:
    """The shell blocks of a page of this repository."""
    return [block for block in fenced(page, (ROOT / page).read_text()) if block.language in _SHELL]


def every() -> list[Block]:
    """The shell blocks of all pages."""
    return [block for page in pages() for block in shell(page)]


def named(key: str) -> Block:
    """The block of this key. Raises KeyError if there is none."""
    page = key.partition(": ")[0]
    return {block.key: block for block in shell(page)}[key]
