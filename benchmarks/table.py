"""The table of README.md: one row per figure; a run replaces the rows that it measured and leaves the others."""

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).parent / "README.md"
_BEGIN, _END = "<!-- begin: written by python -m benchmarks -->", "<!-- end -->"
_HEAD = ("What", "Ours", "Yardstick", "Ratio", "Target", "Load", "Command")


@dataclass(frozen=True)
class Row:
    """One figure and what it is held against."""

    what: str
    ours: str
    yardstick: str
    ratio: str
    target: str
    command: str
    load: str = ""

    def line(self) -> str:
        """The row in Markdown."""
        cells = (self.what, self.ours, self.yardstick, self.ratio, self.target, self.load, f"`{self.command}`")
        return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """The median, and the least and greatest of several."""
    middle, low, high = statistics.median(values), min(values), max(values)
    if len(values) == 1:
        return f"{middle:.{digits}f} {unit}"
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f}, n={len(values)})"


def ratio(ours: Sequence[float], yardstick: Sequence[float]) -> str:
    """The median of the ratios of neighbours, taken one right after the other, and the least and greatest."""
    ratios = [one / other for one, other in zip(ours, yardstick, strict=True)]
    return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"


def load() -> str:
    """The machine's load average over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def machine() -> str:
    """The machine in one line."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    memory = pages * size / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"


def render(rows: Iterable[Row]) -> str:
    """The rows as a table."""
    return "\n".join([_line(_HEAD), _line(["---"] * len(_HEAD)), *(row.line() for row in rows)])


def write(rows: Sequence[Row], path: Path = README) -> None:
    """Replace the rows of the same name in the README, and add the new ones."""
    before, old, after = place(path, _BEGIN)
    lines = {_name(line): line for line in old.splitlines() if line.startswith("| ")}
    lines.pop(_HEAD[0], None), lines.pop("---", None)
    lines |= {row.what: row.line() for row in rows}
    table = "\n".join([_line(_HEAD), _line(["---"] * len(_HEAD)), *lines.values()])
    path.write_text(f"{before}\n{machine()}.\n\n{table}\n{after}")


def place(path: Path, begin: str) -> tuple[str, str, str]:
    """What stands before, in and behind the place of a table in a file; raises ValueError where it has none."""
    before, found, rest = path.read_text().partition(begin)
    if not found:
        raise ValueError(f"{path.name} has no place for a table: expected {begin}")
    old, _, after = rest.partition(_END)
    return before + begin, old, _END + after


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(line: str) -> str:
    return line.split("|")[1].strip()
