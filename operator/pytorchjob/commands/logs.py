"""`logs`: what all ranks of a job print, merged."""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.cluster.gather import gather_job
from pytorchjob.commands.options import DURATION, here, job_argument, local_option, with_cluster
from pytorchjob.commands.outcome import FAILED, INVALID, fail
from pytorchjob.logs.containers import container_names, short_name
from pytorchjob.logs.printing import Printer, terminal_paint
from pytorchjob.logs.ranks import Ranks, parse_ranks, pod_ranks
from pytorchjob.logs.session import LogOptions, LogSession
from pytorchjob.view.job_view import make_job_view
from pytorchjob.view.reading import ended
from pytorchjob_operator import names
from pytorchjob_operator.terminal import say


@click.command("logs")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines too, until the job ends.")
@click.option("--rank", metavar="RANKS", help="These ranks only, for example 0,3-5. Default: all.")
@click.option("--since", type=DURATION, metavar="TIME", help="Lines of the last 5s, 2m or 3h only.")
@click.option("--since-time", metavar="DATE", help="Lines since a moment only, for example 2026-01-02T03:04:05Z.")
@click.option("--tail", type=click.IntRange(min=-1), metavar="N", help="The last N lines of each pod. Default: all.")
@click.option("--grep", metavar="REGEX", help="Lines that match this regular expression only.")
@click.option("-p", "--previous", is_flag=True, help="The logs of the containers before their last restart.")
@click.option("--timestamps", is_flag=True, help="Print the node's timestamp before each line.")
@click.option("-c", "--container", metavar="NAME", default=names.CONTAINER, show_default=True, help="Container.")
@local_option
@with_cluster
def logs_command(
    cluster: Cluster,
    job: str,
    follow: bool,
    rank: str | None,
    since: float | None,
    since_time: str | None,
    tail: int | None,
    grep: str | None,
    previous: bool,
    timestamps: bool,
    container: str,
) -> None:
    """Print what all ranks of a job print, each line with its rank, in the order of the nodes' timestamps.

    With -f the command follows the job to its end, over restarted containers, new pods and lost connections. The exit
    status is 0 if the job has succeeded, and 1 if it has failed. Notes go to stderr: about the logs themselves, and
    about the rank of a failed job that failed first, if that is known.
    """
    if follow and previous:
        raise click.UsageError("a previous log has ended and cannot be followed: leave out -f or --previous")
    options = LogOptions(
        container=container,
        previous=previous,
        since=_moment(since, since_time),
        tail=None if tail == -1 else tail,
        ranks=_ranks(rank),
        pattern=_pattern(grep),
    )
    end = ended(cluster.job(job))
    pods = cluster.pods(job)
    _check(pods, options)
    session = LogSession(cluster, job, options, lambda text: say(f"note: {text}", err=True))
    paint = terminal_paint() if sys.stdout.isatty() else None
    printer = Printer(sys.stdout.buffer, paint, timestamps=timestamps, terminal=sys.stdout.isatty())
    if not pods and (not follow or end):
        fail(f"the job {job} has no pods", _why(job))
    if not follow:
        session.read(pods, printer.write)
    failed = not session.follow(pods, printer.write) if follow else end == "Failed"
    if failed and rank is None:
        _name_the_first(cluster, job)
    if failed and follow:
        sys.exit(FAILED)


def _name_the_first(cluster: Cluster, job: str) -> None:
    """Print which rank of a failed job failed first, if that is known: the errors of the others follow from it."""
    try:
        now = datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
        view = make_job_view(gather_job(cluster, job, now))
    except ClusterError:
        return
    first = view.findings[0] if view.findings else None
    if first is not None and "rank" in first.values:
        say(
            f"note: the first error is that of rank {first.values['rank']}, as far as the pods show. {first.why}",
            err=True,
        )
        say(f"note: {view.next_step}  {view.next_command}", err=True)


def _why(job: str) -> str:
    return f"`pytorchjob status {job}{here()}` and `pytorchjob events {job}{here()}` show why"


def _check(pods: Sequence[Object], options: LogOptions) -> None:
    """End with a sentence if the container or the ranks cannot be."""
    known = list(dict.fromkeys(name for pod in pods for name in container_names(pod)))
    if pods and options.container not in known:
        near = get_close_matches(options.container, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"the containers are: {', '.join(known)}"
        fail(f"no pod has a container {options.container}", remedy, INVALID)
    fixed = [pod_ranks(pod, short_name(pod), options.container).fixed for pod in pods]
    if pods and all(fixed) and options.ranks is not None:
        ranks = sorted(rank for pod in fixed for rank in pod)
        if not options.ranks.has_any(ranks):
            fail("the job has none of these ranks", f"its ranks are {ranks[0]} to {ranks[-1]}", INVALID)


def _ranks(text: str | None) -> Ranks | None:
    try:
        return None if text is None else parse_ranks(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--rank") from None


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}", param_hint="--grep") from None


def _moment(since: float | None, since_time: str | None) -> datetime | None:
    if since and since_time:
        raise click.UsageError("--since and --since-time exclude each other")
    if since:
        return datetime.now(UTC) - timedelta(seconds=since)  # noqa: TID251 - a shell: here time is read
    if since_time is None:
        return None
    try:
        moment = datetime.fromisoformat(since_time)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        sentence = f"{since_time!r} is not a moment with a time zone, for example 2026-01-02T03:04:05Z"
        raise click.BadParameter(sentence, param_hint="--since-time")
    return moment
