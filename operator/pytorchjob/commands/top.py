"""`top [JOB]`: what the pods of jobs use, next to what they asked for."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import NoPermission
from pytorchjob.cluster.metrics import pods_of_jobs, read_pod_metrics
from pytorchjob.commands.options import (
    JOB_NAME,
    all_namespaces_option,
    complete_jobs,
    output_option,
    selector_option,
    with_cluster,
)
from pytorchjob.screen import progress, top
from pytorchjob.view import usage
from pytorchjob.view.progress import progress_view
from pytorchjob.view.usage import Usage
from pytorchjob_operator.terminal import say


@click.command("top")
@click.argument("job", metavar="[JOB]", type=JOB_NAME, required=False, shell_complete=complete_jobs)
@all_namespaces_option
@selector_option
@click.option("--containers", is_flag=True, help="A line for each container of the pods of JOB.")
@click.option("--sort-by", type=click.Choice(["cpu", "memory"]), help="The largest first. Default: in their order.")
@click.option("--sum", "with_sum", is_flag=True, help="A last line with the sum of the pods of JOB.")
@click.option("--no-headers", is_flag=True, help="Without the line of headers.")
@output_option("json")
@with_cluster
def top_command(
    cluster: Cluster,
    job: str | None,
    all_namespaces: bool,
    selector: str,
    containers: bool,
    sort_by: str | None,
    with_sum: bool,
    no_headers: bool,
    output: str | None,
) -> None:
    """Show what the pods of a job use, next to what they asked for: CPU, memory, and its step rate.

    Without a job it shows a line for each job. The cluster needs a metrics server. The column GPU shows the
    accelerators of the pods; most metrics servers do not know how much of them is used.
    """
    if job is not None and (all_namespaces or selector):
        raise click.UsageError("-A and -l choose among jobs: leave out JOB, or these options")
    if job is None and (containers or with_sum):
        raise click.UsageError("--containers and --sum are about the pods of a job: give its name")
    if job is None:
        rows, jobs = _of_jobs(cluster, selector, all_namespaces)
    else:
        rows, jobs = _of_pods(cluster, job, containers)
    rates = {_key(found): _rate(found) for found in jobs}
    if sort_by:
        rows = sorted(rows, key=_by(sort_by), reverse=True)
    if output == "json":
        say(json.dumps(top.values(rows, rates), indent=4))
        return
    if job is not None:
        say(progress.line(progress_view(jobs[0], _now())))
    if not rows:
        what = f"The job {job} has no pods that run." if job else "No jobs with pods that run found."
        say(what, err=True)
        return
    if job is None:
        say(top.job_table(rows, rates, namespaces=all_namespaces, headers=not no_headers))
    else:
        summary = usage.total(job, rows) if with_sum else None
        say(top.pod_table(rows, containers=containers, summary=summary, headers=not no_headers))
    if any(row.used.cpu is None for row in rows):
        say("note: a - below CPU: the metrics server has no value yet; it needs about a minute", err=True)


def _of_pods(cluster: Cluster, job: str, containers: bool) -> tuple[Sequence[Usage], Sequence[Object]]:
    found = cluster.job(job)
    pods = cluster.pods(job)
    metrics = read_pod_metrics(cluster, job)
    return usage.pod_usages(pods, metrics, containers=containers), [found]


def _of_jobs(cluster: Cluster, selector: str, all_namespaces: bool) -> tuple[Sequence[Usage], Sequence[Object]]:
    """Return a row for each job that has pods."""
    jobs = cluster.jobs(selector, all_namespaces=all_namespaces)
    found = cluster.read(f"/api/v1{pods_of_jobs(cluster.namespace, None, all_namespaces=all_namespaces)}")
    if found is None:
        place = "all namespaces" if all_namespaces else f"the namespace {cluster.namespace}"
        raise NoPermission(f"you may not list pods in {place}", "ask an administrator for it, or give a job: top JOB")
    metrics = read_pod_metrics(cluster, all_namespaces=all_namespaces)
    grouped = usage.by_job(usage.pod_usages(found.get("items") or (), metrics))
    known = [key for key in map(_key, jobs) if key in grouped]
    return [usage.total(key[1], grouped[key]) for key in known], jobs


def _key(job: Object) -> tuple[str, str]:
    return str(job["metadata"].get("namespace") or ""), str(job["metadata"]["name"])


def _rate(job: Object) -> float | None:
    view = progress_view(job, _now())
    return None if view.ended else view.rate


def _by(resource: str) -> Callable[[Usage], float]:
    return lambda row: getattr(row.used, resource) or 0.0


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a shell: here time is read
