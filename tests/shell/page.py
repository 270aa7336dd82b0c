"""Writes the table of all shell blocks: `python -m tests.shell.page docs/shell-blocks.md`. `make generate` calls it."""

import posixpath
import re

from pytorchjob_operator.generated import MARKS, insert_between, rewrite
from tests.shell.blocks import Block, every
from tests.shell.register import BY_HAND, EXECUTED, NOT_EXECUTED

PAGE = "docs/shell-blocks.md"


def table() -> str:
    """The blocks that a test executes, then the others. Raises KeyError for a block that is in no class."""
    blocks = every()
    done = [block for block in blocks if block.key in EXECUTED]
    by_hand = [block for block in blocks if block.key in BY_HAND]
    rest = [block for block in blocks if block.key not in {*EXECUTED, *BY_HAND}]
    partly = sum(bool(EXECUTED[block.key].without and not EXECUTED[block.key].whole) for block in done)
    lines = [f"{len(blocks)} blocks. Tests execute {len(done)} of them: {len(done) - partly} whole, {partly} in part."]
    lines += ["", "## Executed", ""]
    lines += ["| page | first line | test | left out | whole in |", "| --- | --- | --- | --- | --- |"]
    lines += map(_executed, done)
    lines += ["", "## Executed by hand", ""]
    lines += ["| page | first line | commit | day | machine | result | record |", f"|{' --- |' * 7}"]
    lines += map(_by_hand, by_hand)
    lines += ["", "## Not executed", "", "| page | first line | why | nearest test |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *map(_not_executed, rest)])


def _executed(block: Block) -> str:
    entry = EXECUTED[block.key]
    left_out = "<br>".join(f"`{words}`" for words in entry.without)
    return _row(block, f"`{entry.test}`", left_out, f"`{entry.whole}`" if entry.whole else "")


def _by_hand(block: Block) -> str:
    entry = BY_HAND[block.key]
    page, commits = entry.records[0], ", ".join(entry.commits) or "not recorded"
    return _row(block, commits, entry.day, entry.machine, entry.result, f"[{page}]({_path(page)})")


def _not_executed(block: Block) -> str:
    entry = NOT_EXECUTED[block.key]
    return _row(block, entry.why, f"`{entry.instead}`" if entry.instead else "")


def _row(block: Block, *cells: str) -> str:
    line = block.first_line.removesuffix("\\").strip().replace("|", "\\|")
    return f"| {' | '.join([_link(block), f'`{line}`', *cells])} |"


def _link(block: Block) -> str:
    anchor = re.sub(r"[^\w\- ]", "", block.heading.lower()).replace(" ", "-")
    return f"[{block.page.removeprefix('docs/')}]({_path(block.page)}#{anchor})"


def _path(page: str) -> str:
    return posixpath.relpath(page, posixpath.dirname(PAGE))


def insert(text: str) -> str:
    """The page with the present table. Raises ValueError without the marks."""
    return insert_between(text, MARKS, table())


if __name__ == "__main__":
    rewrite(insert)
