"""Progress as text: one line for pipes, and a bar for terminals."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytorchjob.view.progress import JobProgress
from pytorchjob_operator.shown_values import age
from pytorchjob_operator.terminal import visible_cell

if TYPE_CHECKING:
    from rich.console import RenderableType

_UNKNOWN = "shows no progress"
_MOST_PODS = 3
_STALE_SECONDS = 120
"""Older values are shown with their age: the operator writes them at least once a minute while they change."""


def line(view: JobProgress) -> str:
    """Return one line: job, state, percentage, step, loss, rate, remaining time."""
    return visible_cell(f"{view.job}: {', '.join([view.state or 'New', *_parts(view)])}")


def values(view: JobProgress) -> dict[str, Any]:
    """Return the values for programs; unknown ones are null."""
    return {
        "job": view.job,
        "state": view.state or None,
        "ended": view.ended,
        "step": view.step,
        "total": view.total,
        "percent": view.percent,
        "remainingSeconds": view.remaining,
        "stepsPerSecond": view.rate,
        "loss": view.loss,
        "metrics": dict(view.metrics),
        "without": [*view.without],
        "ageSeconds": None if view.age is None else round(view.age, 1),
    }


def bar(view: JobProgress, why: str = "") -> "RenderableType":
    """Return a bar with the same values for a terminal; `why`: the reason if there are none."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    share = view.share
    cells: list[Any] = [Text(visible_cell(view.job), style="bold"), Text(visible_cell(view.state or "New"))]
    if share is not None:
        cells.append(ProgressBar(total=1.0, completed=share, width=30))
    cells.append(Text(visible_cell(": ".join(filter(None, [", ".join(_parts(view)), why])))))
    for cell in cells:
        grid.add_column(no_wrap=not why or cell is not cells[-1])
    grid.add_row(*cells)
    return grid


def _parts(view: JobProgress) -> Iterator[str]:
    yield from _values(view)
    if view.without:
        yield f"without {', '.join(view.without[:_MOST_PODS])}"


def _values(view: JobProgress) -> Iterator[str]:
    if not view.known:
        yield _UNKNOWN
        return
    if view.percent is not None:
        yield f"{view.percent}%"
    if view.step is not None:
        yield f"step {view.step}" + (f"/{view.total}" if view.total else "")
    if view.loss is not None:
        yield f"loss {view.loss:.4g}"
    if view.rate and not view.ended:
        yield _speed(view.rate)
    if view.remaining is not None:
        yield f"{age(view.remaining)} left"
    if view.age is not None and view.age > _STALE_SECONDS and not view.ended:
        yield f"recorded {age(view.age)} ago"


def _speed(rate: float) -> str:
    """Return the speed in a unit in which it is at least 1."""
    return f"{rate:.3g} steps/s" if rate >= 1 else f"{1 / rate:.3g} s/step"
