"""One line of JSON for each repetition, so that a run can be stopped and taken up again, and the table made of them."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import ascii_uppercase

from benchmarks.recovery.cells import FAULTS
from benchmarks.recovery.contenders import CONTENDERS
from benchmarks.table import place

README = Path(__file__).parent / "README.md"
_BEGIN = "<!-- begin: {}, written by python -m benchmarks.recovery table --write -->"


@dataclass(frozen=True)
class Repetition:
    """What one fault cost one contender; None where it did not recover within the limit."""

    contender: str
    fault: str
    at: float
    load: float
    pod: str
    seconds: float | None
    first_seconds: float | None = None
    pause_seconds: float | None = None
    pod_seconds: float | None = None
    """From the fault until the container that replaced the lost one had started."""
    import_seconds: float | None = None
    """The longest that a new training process took to import what it needs."""
    lost_steps: int | None = None
    groups: int | None = None
    restart_counts: int | None = None
    restarted: int = 0
    """How many containers of other pods were restarted."""
    problems: tuple[str, ...] = ()
    """What was wrong with the training itself."""
    machine: str = ""


def append(path: Path, repetition: Repetition) -> None:
    """Keep one repetition."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(repetition)) + "\n")


def load(path: Path) -> list[Repetition]:
    """All that was kept."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [Repetition(**{**row, "problems": tuple(row["problems"])}) for row in found]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many percent of all are not above; a failure is infinite."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def table(found: Iterable[Repetition]) -> str:
    """The table in Markdown: a row for each fault and contender that was measured."""
    cells: dict[tuple[str, str], list[Repetition]] = {}
    for repetition in found:
        cells.setdefault((repetition.fault, repetition.contender), []).append(repetition)
    head = (
        "Fault",
        "Who",
        "p50",
        "p95",
        "max",
        "not recovered",
        "new pod after",
        "imports",
        "beyond",
        "pause",
        "lost steps",
        "others restarted",
        "wrong",
        "n",
        "load",
        "run",
    )
    rows = [head, ("---",) * len(head)]
    found = [*found]
    letters = dict(zip(dict.fromkeys(repetition.machine for repetition in found), ascii_uppercase, strict=False))
    for fault in FAULTS.values():
        for contender in CONTENDERS.values():
            if cell := cells.get((fault.name, contender.name)):
                rows.append((fault.what, contender.name, *_figures(cell), _run(cell, letters)))
    machines = "\n".join(f"- {letter}: {name or 'a machine that was not recorded'}" for name, letter in letters.items())
    return "\n".join([machines, "", *(f"| {' | '.join(row)} |" for row in rows)])


def _run(cell: Sequence[Repetition], letters: Mapping[str, str]) -> str:
    """How many repetitions ran on which machine, and on which days."""
    counts = Counter(letters[repetition.machine] for repetition in cell)
    where = ", ".join(letter if len(counts) == 1 else f"{number} x {letter}" for letter, number in counts.items())
    days = sorted({datetime.fromtimestamp(repetition.at, UTC).date().isoformat() for repetition in cell})
    return f"{where}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"


def write(text: str, kept: str, path: Path = README) -> None:
    """Put the table of a file of repetitions into its place in the README; raises ValueError where it has none."""
    before, _, after = place(path, _BEGIN.format(kept))
    path.write_text(f"{before}\n{text}\n{after}")


def _figures(cell: Sequence[Repetition]) -> tuple[str, ...]:
    seconds = _seconds(cell)
    failed = sum(repetition.seconds is None for repetition in cell)
    pods = [repetition.pod_seconds for repetition in cell if repetition.pod_seconds is not None]
    known = [(repetition.seconds, repetition.pod_seconds if pods else repetition.import_seconds) for repetition in cell]
    beyond = [seconds - start for seconds, start in known if seconds is not None and start is not None]
    imports = [repetition.import_seconds for repetition in cell if repetition.import_seconds is not None]
    pauses = [repetition.pause_seconds for repetition in cell if repetition.pause_seconds is not None]
    lost = [repetition.lost_steps for repetition in cell if repetition.lost_steps is not None]
    wrong = sum(bool(repetition.problems) for repetition in cell)
    return (
        *(
            f"**{_text(percentile(seconds, 50))}**" if percent == 50 else _text(percentile(seconds, percent))
            for percent in (50, 95, 100)
        ),
        str(failed),
        f"{statistics.median(pods):.2f} s" if pods else "",
        f"{statistics.median(imports):.2f} s" if imports else "",
        f"{statistics.median(beyond):.2f} s" if beyond else "",
        f"{statistics.median(pauses):.2f} s" if pauses else "",
        f"<= {max(lost)}" if lost else "",
        str(sum(repetition.restarted for repetition in cell)),
        str(wrong),
        str(len(cell)),
        f"{statistics.median(repetition.load for repetition in cell):.1f}",
    )


def _seconds(cell: Iterable[Repetition]) -> list[float]:
    return [math.inf if repetition.seconds is None else repetition.seconds for repetition in cell]


def _text(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.2f} s"
