"""`delete`: jobs, with their pods and all else that belongs to them."""

import click

from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import ClusterError
from pytorchjob.commands.deadline import deadline
from pytorchjob.commands.options import DURATION, jobs_argument, names_of, selector_option, with_cluster
from pytorchjob.commands.outcome import explain, status_of
from pytorchjob_operator import names
from pytorchjob_operator.terminal import say


@click.command("delete")
@jobs_argument
@selector_option
@click.option("--all", "all_jobs", is_flag=True, help="All jobs of the namespace.")
@click.option("--wait", type=bool, default=True, metavar="BOOL", help="Wait until the pods are gone. Default: true.")
@click.option("--timeout", type=DURATION, metavar="TIME", help="Stop waiting after this time, with exit status 124.")
@with_cluster
def delete_command(
    cluster: Cluster, jobs: tuple[str, ...], selector: str, all_jobs: bool, wait: bool, timeout: float | None
) -> None:
    """Delete jobs. The garbage collector deletes their pods and Services.

    Checkpoints on volumes stay. A job that does not exist does not keep the others from being deleted.
    """
    if bool(jobs) + bool(selector) + all_jobs != 1:
        raise click.UsageError("choose the jobs: names, or -l SELECTOR, or --all")
    chosen = jobs or tuple(names_of(cluster.jobs(selector)))
    if not chosen:
        say(f"No jobs found in the namespace {cluster.namespace}.", err=True)
        return
    worst = 0
    with deadline(timeout, "the jobs are not gone yet", "the API server goes on deleting them"):
        for name in chosen:
            try:
                _delete(cluster, name, wait)
            except ClusterError as error:
                explain(error.message, error.remedy)
                worst = max(worst, status_of(error))
    click.get_current_context().exit(worst)


def _delete(cluster: Cluster, name: str, wait: bool) -> None:
    cluster.job(name)  # its own error names the jobs that may be meant
    changes = cluster.watch(name)
    present = next(changes, None) if wait else None
    cluster.delete(name, foreground=wait)
    if present is not None:
        next((change for change in changes if change.is_deleted), None)
    say(f'{names.KIND.lower()}.{names.GROUP} "{name}" deleted')
