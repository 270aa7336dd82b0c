"""The kept runs of both tables, and the page that `python -m tests.failures --write` makes of them."""

from statistics import median

from tests.kept_runs import KeptRuns, Run

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


def _row(name: str, found: list[Run]) -> str:
    wasted = [run["wasted"] for run in found if run["wasted"] is not None]
    times = (f"{median(wasted):.1f} s", f"{max(wasted):.1f} s") if wasted else ("", "")
    right = sum(not run["wrong"] for run in found)
    return f"| {' | '.join((name, str(len(found)), str(right), *times))} |\n"


RUNS = KeptRuns("failures", "name", _HEAD, _row)
