"""`progress`: how far the training of a job is, live until it ends."""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.commands.options import here, job_argument, output_option, with_cluster
from pytorchjob.commands.outcome import FAILED, fail, suggest
from pytorchjob.screen import progress as screen
from pytorchjob.view.advice import follow_output
from pytorchjob.view.progress import progress_view, why_none
from pytorchjob_operator.terminal import say

if TYPE_CHECKING:
    from rich.console import RenderableType

_FIRST_STEPS = 60.0
"""Seconds in which a job with the agent may be followed without any step, before the command explains it."""


@click.command("progress")
@job_argument
@click.option("--once", is_flag=True, help="Print the present progress and end.")
@output_option("json")
@with_cluster
def progress_command(cluster: Cluster, job: str, once: bool, output: str | None) -> None:
    """Show how far the training of a job is: a bar, the loss, the speed and the remaining time.

    It follows the job to its end. If there is nothing to show, it prints the reason. A pipe gets one line for each
    change. `-o json` prints the present values and ends.

    Exit status: 0 if the job has not failed, 1 if it failed or was deleted.
    """
    found = cluster.job(job)
    view = progress_view(found, _now())
    if output == "json":
        say(json.dumps(screen.values(view), indent=4))
    elif once or view.ended:
        say(screen.line(view))
        _explain(found)
    else:
        _explain(found, _FIRST_STEPS)
        found = _follow(cluster, job, found)
        view = progress_view(found, _now())
    if view.ended and _failed(found):
        suggest(f"pytorchjob status {job}{here()}")
        sys.exit(FAILED)


def _follow(cluster: Cluster, job: str, found: Object) -> Object:
    """Show each change until the job ends; return it as it was at its end."""
    if not sys.stdout.isatty():
        return _watch(cluster, job, found, _Lines().show)
    from rich.live import Live

    latest = [found]

    def bar() -> "RenderableType":
        now = _now()
        return screen.bar(progress_view(latest[0], now), why_none(latest[0], now, _FIRST_STEPS))

    with Live(get_renderable=bar, refresh_per_second=2):
        return _watch(cluster, job, found, lambda new: latest.__setitem__(0, new))


def _watch(cluster: Cluster, job: str, found: Object, show: Callable[[Object], None]) -> Object:
    show(found)
    for change in cluster.watch(job):
        if change.kind == "DELETED":
            fail(f"the job {job} was deleted")
        found = change.object
        show(found)
        if progress_view(found, _now()).ended:
            break
    return found


class _Lines:
    """Prints a line for each change of progress or state; only a changed speed or time is no change."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] | None = None

    def show(self, found: Object) -> None:
        view = progress_view(found, _now())
        shown = (view.state, view.step, view.total, view.percent, view.metrics, view.without)
        if shown != self._last:
            say(screen.line(view))
            self._last = shown


def _explain(found: Object, least: float = 0.0) -> None:
    """Print why a job shows no progress. The lines of its script are what there is to follow."""
    if why := why_none(found, _now(), least):
        say(f"no progress: {why}", err=True)
        meta = found["metadata"]
        suggest(follow_output(meta["name"], str(meta.get("namespace") or "")))


def _failed(found: Object) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Failed" and each.get("status") == "True" for each in conditions)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
