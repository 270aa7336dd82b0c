"""`python -m tests.lanes.costs [ROWS]`: the files and tests that cost most CPU time in the latest run (`make costs`).

A cost is wall and CPU seconds of a test with its fixtures. A fixture of several tests counts for the first one; a
process that outlives its test counts for the test in which it ends.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lanes.events import EVENTS
from tests.lanes.summary import table

_ROWS = 25
_FOLDER = Path("out/test")


@dataclass(frozen=True)
class Cost:
    """What some tests took, in seconds."""

    wall: float = 0.0
    cpu: float = 0.0
    tests: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu, self.tests + other.tests)


@dataclass(frozen=True)
class Run:
    """One pytest run: the cost of each test, and the CPU seconds of the whole run if it has ended."""

    tests: Mapping[str, Cost]
    cpu: float | None = None

    @property
    def rest(self) -> float:
        """CPU seconds outside all tests: starting pytest and its workers, imports, collection."""
        return max(0.0, (self.cpu or 0.0) - total(self.tests.values()).cpu)


def read(lines: Iterable[str]) -> Run:
    """Return the run that wrote these events."""
    tests: dict[str, Cost] = {}
    cpu = None
    for event in map(json.loads, lines):
        if "spent" in event:
            tests[event["spent"]] = Cost(event["seconds"], event["cpu"], 1)
        elif "collected" in event:
            cpu = event.get("cpu")
    return Run(tests, cpu)


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum."""
    return sum(costs, start=Cost())


def by_file(tests: Mapping[str, Cost]) -> dict[str, Cost]:
    """Return the cost of each file."""
    found: dict[str, Cost] = {}
    for name, cost in tests.items():
        file = name.partition("::")[0]
        found[file] = found.get(file, Cost()) + cost
    return found


def text(runs: Mapping[str, Run], rows: int) -> str:
    """Return three tables: the runs, and the files and the tests that cost most."""
    whole = [("run", "CPU", "outside tests", "tests")]
    for name, run in runs.items():
        sums = total(run.tests.values())
        whole.append((name, f"{sums.cpu + run.rest:.1f}", f"{run.rest:.1f}", str(sums.tests)))
    tests = {name: cost for run in runs.values() for name, cost in run.tests.items()}
    return "\n".join([*table(whole), "", *_most("file", by_file(tests), rows), "", *_most("test", tests, rows)])


def _most(kind: str, costs: Mapping[str, Cost], rows: int) -> list[str]:
    most = sorted(costs.items(), key=lambda item: item[1].cpu, reverse=True)[:rows]
    cells = [("CPU", "wall", "tests", kind)]
    return table([*cells, *((f"{cost.cpu:.1f}", f"{cost.wall:.1f}", str(cost.tests), name) for name, cost in most)])


def main(arguments: list[str], folder: Path) -> int:
    """Print the tables of the run that wrote into this folder; return the exit code."""
    paths = sorted(folder.glob(f"*{EVENTS}"))
    if not paths:
        print(f"{folder} has no events of a run: run `make test` first", file=sys.stderr)
        return 1
    rows = int(arguments[0]) if arguments else _ROWS
    print(text({path.stem: read(path.read_text().splitlines()) for path in paths}, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], _FOLDER))
