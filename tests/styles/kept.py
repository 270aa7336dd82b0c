"""The kept runs of all styles, and the page that `python -m tests.styles --write` makes of them."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.styles.styles import STYLES

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RAW, PAGE = _BENCHMARKS / "styles.jsonl", _BENCHMARKS / "styles.md"
_HEAD = """\
# Styles of saving, and what a fault costs

`python -m tests.styles --kills 20` runs each style of [tests/styles/styles.py](../tests/styles/styles.py) with real
agents, a real coordinator and real torch processes, and disturbs it at random moments: with SIGKILL of a worker, or
with the loss of a pod and its memory. After each fault all ranks have to start from the same whole save, and the
losses of the whole training have to be those of a run that nothing disturbed.

*Behind* is the number of finished saves that were newer than the one that the ranks started from, at most. *Left*: the
style is left to the script and its own storage, with a line that says so.

`python -m tests.styles --write` makes this page of [styles.jsonl](styles.jsonl), which has each run with its seed and
its faults.

| style | runs | workers killed | pods lost | behind | broken promises | left |
| --- | --- | --- | --- | --- | --- | --- |
"""


def load() -> list[dict[str, Any]]:
    """Return the kept runs."""
    return [json.loads(line) for line in RAW.read_text().splitlines()]


def page(runs: list[dict[str, Any]]) -> str:
    """Return the page."""
    styles = defaultdict[str, list[dict[str, Any]]](list)
    for run in runs:
        styles[run["style"]].append(run)
    return _HEAD + "".join(_row(name, styles[name]) for name in STYLES if name in styles)


def _row(name: str, runs: list[dict[str, Any]]) -> str:
    faults = [fault for run in runs for fault in run["faults"]]
    kinds = [sum(fault["kind"] == kind for fault in faults) for kind in ("worker", "pod")]
    behind = max((fault["behind"] for fault in faults), default=0)
    broken = sum(bool(run["wrong"]) for run in runs)
    left = next((run["refused"].partition(":")[0] for run in runs if run["verdict"] == "refused"), "")
    return f"| {' | '.join((name, str(len(runs)), *map(str, kinds), str(behind), str(broken), left))} |\n"
