"""`list`: all jobs, one line each."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from pytorchjob.cluster import queues
from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.commands.options import (
    all_namespaces_option,
    local_option,
    output_option,
    selector_option,
    with_cluster,
)
from pytorchjob.screen import plain
from pytorchjob.screen.status import queue_words
from pytorchjob.view import reading
from pytorchjob.view.listing import UNKNOWN, JobLine, job_line
from pytorchjob.view.queueing import whole_job
from pytorchjob_operator.terminal import say

_HEADER = ("NAME", "STATE", "READY", "RESTARTS", "STEP", "PROGRESS", "ETA", "AGE")
_WIDE = ("REASON",)


@click.command("list")
@all_namespaces_option
@selector_option
@output_option("json", "yaml", "wide", "name")
@local_option
@with_cluster
def list_command(cluster: Cluster, all_namespaces: bool, selector: str, output: str | None) -> None:
    """List the jobs of a namespace.

    READY is running pods of wanted pods. STEP, PROGRESS and ETA need a script that reports its progress. QUEUE, the
    last column, appears if a job waits in a queue of Kueue.
    """
    found = cluster.jobs(selector, all_namespaces=all_namespaces)
    if output in ("json", "yaml", "name"):
        say(plain.objects(found, output), nl=bool(found) or output != "name")
        return
    if not found:
        place = "" if all_namespaces else f" in the namespace {cluster.namespace}"
        say(f"No jobs found{place}.", err=True)
        return
    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    lines = [job_line(job) for job in found]
    rows = [[*_cells(line, now), *((line.reason,) if output == "wide" else ())] for line in lines]
    header = [*_HEADER, *(_WIDE if output == "wide" else ())]
    if any(queued := _queued(cluster, found, now)):
        header, rows = [*header, "QUEUE"], [[*row, words or UNKNOWN] for row, words in zip(rows, queued, strict=True)]
    if all_namespaces:
        header, rows = ["NAMESPACE", *header], [[line.namespace, *row] for line, row in zip(lines, rows, strict=True)]
    say(plain.columns(header, rows))


def _queued(cluster: Cluster, jobs: Sequence[Object], now: datetime) -> list[str]:
    """Return for each job where it waits, and how long; empty: it does not wait in a queue."""
    places = {(reading.namespace_of(job), reading.queue_of(job)) for job in jobs if reading.queued(job)}
    waiting = {place: queues.waiting_in(cluster, *place) for place in sorted(places)}
    return [
        queue_words(whole_job(job, waiting[reading.namespace_of(job), reading.queue_of(job)]), now)
        if reading.queued(job)
        else ""
        for job in jobs
    ]


def _cells(line: JobLine, now: datetime) -> list[str]:
    return [
        line.name,
        line.state,
        line.ready,
        str(line.restarts),
        line.step,
        UNKNOWN if line.percent is None else f"{line.percent}%",
        UNKNOWN if line.remaining is None else plain.age(line.remaining),
        plain.since(line.created, now),
    ]
