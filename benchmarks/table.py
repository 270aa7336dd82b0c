"""The figures and the table of README.md: every run adds its figures with all samples to measurements.jsonl.

The table shows the newest figure of each name, with the date and the machine of its run. It is made of the file alone.
"""

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from string import ascii_uppercase

README = Path(__file__).parent / "README.md"
RAW = Path(__file__).parent / "measurements.jsonl"
_BEGIN, _END = "<!-- begin: measurements.jsonl, written by python -m benchmarks -->", "<!-- end -->"
_HEAD = ("What", "Ours", "Yardstick", "Ratio", "Target", "Load", "Run", "Command")
_NO_SAMPLES = "without raw data: to be renewed"

Samples = Mapping[str, Sequence[float]]
"""All values of one figure: ours, the yardstick's, and what else it is made of."""


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
    samples: Samples = field(default_factory=dict)

    def line(self, run: str = "") -> str:
        """The row in Markdown; `run` has the date and the machine."""
        cells = (self.what, self.ours, self.yardstick, self.ratio, self.target, self.load, run, f"`{self.command}`")
        return _line(cells)


@dataclass(frozen=True)
class Measurement:
    """One figure with the date and the machine of its run."""

    row: Row
    at: str
    """The date and time of the run (UTC). Empty for figures from before all samples were kept."""
    machine: str


def spread(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """The median, and the least and greatest of several."""
    middle, low, high = statistics.median(values), min(values), max(values)
    if len(values) == 1:
        return f"{middle:.{digits}f} {unit}"
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f}, n={len(values)})"


def ratio(ours: Sequence[float], yardstick: Sequence[float]) -> str:
    """The median of the ratios of neighbours, taken one right after the other, and the least and greatest."""
    ratios = [value / other for value, other in zip(ours, yardstick, strict=True)]
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


def append(rows: Iterable[Row], path: Path = RAW) -> None:
    """Keep the figures of this run with their samples."""
    at, where = datetime.now(UTC).isoformat(timespec="seconds"), machine()
    with path.open("a") as file:
        for row in rows:
            file.write(json.dumps(asdict(Measurement(row, at, where)), ensure_ascii=False) + "\n")


def load_all(path: Path = RAW) -> list[Measurement]:
    """All figures that were kept, the newest of a name last."""
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [Measurement(Row(**kept["row"]), kept["at"], kept["machine"]) for kept in found]


def table(found: Iterable[Measurement]) -> str:
    """The machines, and the newest figure of each name, in the order in which the names first came."""
    newest = {kept.row.what: kept for kept in found}
    machines = list(dict.fromkeys(kept.machine for kept in newest.values()))
    letters = dict(zip(machines, ascii_uppercase, strict=False))
    rows = [kept.row.line(_run(kept, letters[kept.machine])) for kept in newest.values()]
    named = "\n".join(f"- {letters[name]}: {name}" for name in machines)
    return "\n".join([named, "", _line(_HEAD), _line(["---"] * len(_HEAD)), *rows])


def _run(kept: Measurement, letter: str) -> str:
    when = kept.at.partition("T")[0] if kept.row.samples else _NO_SAMPLES
    return f"{letter}, {when}"


def write(path: Path = README, raw: Path = RAW) -> None:
    """Put the table of all figures that were kept into its place in the README."""
    before, _, after = place(path, _BEGIN)
    path.write_text(f"{before}\n{table(load_all(raw))}\n{after}")


def place(path: Path, begin: str) -> tuple[str, str, str]:
    """What stands before, in and behind the place of a table in a file; raises ValueError where it has none."""
    before, found, rest = path.read_text().partition(begin)
    if not found:
        raise ValueError(f"{path.name} has no place for a table: expected {begin}")
    old, _, after = rest.partition(_END)
    return before + begin, old, _END + after


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
