"""`status JOB`: one screen about a job."""

import json
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime

import click

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import ApiServerUnreachable
from pytorchjob.cluster.gather import gather_job
from pytorchjob.commands.options import (
    DURATION,
    chosen_options,
    here,
    job_argument,
    local_option,
    output_option,
    with_cluster,
)
from pytorchjob.screen.status import print_status
from pytorchjob.view.job_view import JobView, make_job_view
from pytorchjob.view.state import State
from pytorchjob_operator.terminal import say, visible_yaml

_LOCAL = re.compile(r"pytorchjob (?:logs|events|list) ")
_ENDS = (State.SUCCEEDED, State.FAILED)


@click.command("status")
@job_argument
@click.option("-w", "--watch", is_flag=True, help="Print the screen again after each change, until the job has ended.")
@click.option(
    "--interval",
    type=DURATION,
    default=2.0,
    show_default="2s",
    metavar="TIME",
    help="Time between two reads of --watch.",
)
@output_option("json", "yaml")
@local_option
@with_cluster
def status_command(cluster: Cluster, job: str, watch: bool, interval: float, output: str | None) -> None:
    """Show one screen about a job: state, reason, pods with their ranks, round, recent causes, next step.

    The exit status is 0, whatever the job's state is; `pytorchjob doctor JOB` ends with 1 if it finds a cause.
    """
    view = _show(_read(cluster, job), None, output)
    while watch and view.state not in _ENDS:
        _pause(interval)
        try:
            view = _show(_read(cluster, job), view, output)
        except ApiServerUnreachable as error:
            say(f"{error.message}; still watching", err=True)


def _read(cluster: Cluster, job: str) -> JobView:
    """Return the view; its next step is one that works where the job is."""
    view = make_job_view(gather_job(cluster, job, _now()))
    if not chosen_options().local:
        return view
    if not _LOCAL.match(view.next_command):
        return replace(view, next_step="", next_command="")
    return replace(view, next_command=view.next_command.replace(f" -n {cluster.namespace}", here()))


def _show(view: JobView, before: JobView | None, output: str | None) -> JobView:
    """Print a view that differs from the one before."""
    if before is None or _changed(view, output) != _changed(before, output):
        _print(_text(view, output), clear=before is not None and output is None)
    return view


def _text(view: JobView, output: str | None) -> str:
    if output == "json":
        return json.dumps(view.to_json(), indent=4, ensure_ascii=False)
    if output == "yaml":
        import yaml

        found = view.to_json()
        text = visible_yaml(lambda letters: str(yaml.safe_dump(found, sort_keys=False, allow_unicode=letters)))
        return text.rstrip("\n")
    return print_status(view)


def _changed(view: JobView, output: str | None) -> str:
    """Return the text by which two screens are compared. Time that passes counts as a change on a terminal only."""
    if output is None and sys.stdout.isatty():
        return _text(view, None)
    return json.dumps({**view.to_json(), "time": None}, default=str)


def _print(text: str, *, clear: bool) -> None:
    if clear and sys.stdout.isatty():
        click.clear()
    say(text)


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
