"""`events`: what happened to a job, to its pods and to all else that belongs to it."""

from datetime import UTC, datetime

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.commands.options import job_argument, local_option, output_option, with_cluster
from pytorchjob.screen import plain
from pytorchjob.view import reading
from pytorchjob_operator.terminal import say

_TYPES = click.Choice(["Normal", "Warning"], case_sensitive=False)


@click.command("events")
@job_argument
@click.option("--types", metavar="TYPE", type=_TYPES, help="Only events of this type: Normal or Warning.")
@output_option("json", "yaml")
@local_option
@with_cluster
def events_command(cluster: Cluster, job: str, types: str | None, output: str | None) -> None:
    """Show the events of a job and of its pods, also of pods that are gone, the oldest first.

    The API server forgets events after an hour, unless it is configured otherwise.
    """
    found = [event for event in cluster.events() if reading.event_concerns(event, job)]
    if not found:
        cluster.job(job)  # raises if there is no such job
    chosen = [event for event in found if types in (None, event.get("type"))]
    if output:
        say(plain.objects(chosen, output))
        return
    if not chosen:
        say(f"No events found for the job {job}.", err=True)
        return
    now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
    say(plain.events([(_seen(event, now), event) for event in chosen]))


def _seen(event: Object, now: datetime) -> str:
    """Return when an event was last seen, and how often since when if it was seen more than once."""
    series = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    count = series.get("count") or event.get("count") or 1
    first = event.get("firstTimestamp") or event.get("eventTime")
    return plain.since(last, now) + (f" (x{count} over {plain.since(first, now)})" if count > 1 and first else "")
