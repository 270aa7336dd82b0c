"""The kept runs of both tables, and the page that `python -m tests.failures --write` makes of them."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RAW, PAGE = _BENCHMARKS / "failures.jsonl", _BENCHMARKS / "failures.md"
_HEAD = """\
# What people read of failures, and of job files

`python -m tests.failures --runs 10 --out FILE` runs each case of [tests/failures/table.py](../tests/failures/table.py)
and [tests/failures/files.py](../tests/failures/files.py) with real processes: by `pytorchjob run`, or by
`run_standalone`. A run is right if people read who failed, the error, the place in the script and the next step, and
if no other rank is blamed. Of a wrong file they have to read the field, the problem and the fix.

*Wasted* are the seconds from the failure to the end of the run. A case without them fails before its script can note
a time. The machine had other work at the same time, so these seconds are upper bounds.

`python -m tests.failures --write` makes this page of [failures.jsonl](failures.jsonl), which has each run.

| case | runs | right | wasted, median | longest |
| --- | --- | --- | --- | --- |
"""


def load() -> list[dict[str, Any]]:
    """Return the kept runs."""
    return [json.loads(line) for line in RAW.read_text().splitlines()]


def page(runs: list[dict[str, Any]]) -> str:
    """Return the page."""
    cases = defaultdict[str, list[dict[str, Any]]](list)
    for run in runs:
        cases[run["name"]].append(run)
    return _HEAD + "".join(_row(name, found) for name, found in cases.items())


def _row(name: str, found: list[dict[str, Any]]) -> str:
    wasted = [run["wasted"] for run in found if run["wasted"] is not None]
    times = (f"{median(wasted):.1f} s", f"{max(wasted):.1f} s") if wasted else ("", "")
    right = sum(not run["wrong"] for run in found)
    return f"| {' | '.join((name, str(len(found)), str(right), *times))} |\n"
