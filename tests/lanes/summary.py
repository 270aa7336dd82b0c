"""The text of a run: progress, failures, what was left out, and the closing line."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from tests.lanes.plan import LeftOut
from tests.lanes.results import Failure, Results

_MOST_FAILURES = 40


def clock(seconds: float) -> str:
    """Return minutes and seconds."""
    return f"{int(seconds) // 60:d}:{int(seconds) % 60:02d}"


def progress(seconds: float, lane: str, state: str, results: Results) -> str:
    """Return the line that says how far a lane has come."""
    done = ", ".join(f"{count} {outcome}" for outcome in ("passed", "failed") if (count := results.count(outcome)))
    return f"[{clock(seconds):>5}] {lane:<12} {state}{': ' + done if done else ''}"


def failed_now(lane: str, failure: Failure, log: str) -> str:
    """Return what is printed the moment something fails."""
    first, _, _ = failure.problem.partition("\n")
    return f"FAILED {lane}: {failure.name}\n       {first}\n       log: {log}"


def not_applicable(lane: str, name: str, reason: str) -> str:
    """Return what is printed when a lane's last command cannot judge the run."""
    return f"DOES NOT APPLY {lane}: {name}\n       {reason}"


def failures(found: Mapping[str, Results], logs: Mapping[str, str]) -> list[str]:
    """Return all failures once more, each with the log to open."""
    rows = [(lane, failure) for lane, results in found.items() for failure in results.failures.values()]
    if not rows:
        return []
    lines = ["", f"{len(rows)} failed. Open the log and search for the name:"]
    for lane, failure in rows[:_MOST_FAILURES]:
        lines += [f"  {logs[lane]}  {failure.name}", textwrap.indent(failure.problem, " " * 6)]
    if len(rows) > _MOST_FAILURES:
        lines.append(f"  and {len(rows) - _MOST_FAILURES} more in the same logs")
    return lines


def left_out(rows: Sequence[LeftOut], command: str) -> list[str]:
    """Return the table of what did not run here, why, and how to run it."""
    if not rows:
        return []
    cells = [("left out", "tests", "why", "how to run it")]
    cells += [(row.kind, str(row.tests), row.lack.why, f"{row.lack.remedy}; then {command}") for row in rows]
    return ["", *table(cells)]


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def closing(found: Iterable[Results], skipped: int = 0) -> str:
    """Return the last line, which CI reads; `skipped` tests were left out as a whole."""
    results = list(found)
    passed, failed, more = (
        sum(result.count(outcome) for result in results) for outcome in ("passed", "failed", "skipped")
    )
    return f"{passed} passed, {failed} failed, {more + skipped} skipped"
