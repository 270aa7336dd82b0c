"""The kept runs of all styles, and the page that `python -m tests.styles --write` makes of them."""

from tests.kept_runs import KeptRuns, Run

_HEAD = """\
# Styles of saving, and what a fault costs

`python -m tests.styles --kills N` runs each style of [tests/styles/styles.py](../tests/styles/styles.py) with real
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


def _row(name: str, runs: list[Run]) -> str:
    faults = [fault for run in runs for fault in run["faults"]]
    kinds = [sum(fault["kind"] == kind for fault in faults) for kind in ("worker", "pod")]
    behind = max((fault["behind"] for fault in faults), default=0)
    broken = sum(bool(run["wrong"]) for run in runs)
    left = next((run["refused"].split(": ")[1] for run in runs if run["verdict"] == "refused"), "")
    return f"| {' | '.join((name, str(len(runs)), *map(str, kinds), str(behind), str(broken), left))} |\n"


RUNS = KeptRuns("styles", "style", _HEAD, _row)
