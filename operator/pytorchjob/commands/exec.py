"""`exec`: a command in the pod of a rank. kubectl carries the terminal, because it does so on every cluster."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.commands.options import chosen_options, here, job_argument, with_cluster
from pytorchjob.commands.outcome import INVALID, fail
from pytorchjob.view import reading
from pytorchjob_operator import names


@click.command("exec")
@job_argument
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option("--rank", type=click.IntRange(min=0), metavar="R", help="The pod of this rank. Default: 0.")
@click.option("--replica", metavar="NAME", help="The pod with this name, for example worker-3.")
@click.option("-c", "--container", default=names.CONTAINER, show_default=True, metavar="NAME", help="Container.")
@click.option("-i", "--stdin", is_flag=True, help="Pass the input on.")
@click.option("-t", "--tty", is_flag=True, help="The input is a terminal.")
@with_cluster
def exec_command(
    cluster: Cluster,
    job: str,
    command: tuple[str, ...],
    rank: int | None,
    replica: str | None,
    container: str,
    stdin: bool,
    tty: bool,
) -> None:
    """Run a command in the pod of a rank, for example `pytorchjob exec digits --rank 3 -- nvidia-smi`.

    Ranks count as the operator assigns them: the Master first, then the workers. Needs kubectl on PATH.
    """
    if rank is not None and replica is not None:
        raise click.UsageError("--rank and --replica exclude each other")
    found = cluster.job(job)
    pods = [pod for pod in cluster.pods(job) if not reading.deleting(pod)]
    pod = _by_name(job, pods, replica) if replica else _by_rank(found, pods, rank or 0)
    if reading.has_finished(pod):
        fail(f"the pod {pod['metadata']['name']} has ended ({reading.phase_of(pod)})", f"pytorchjob logs {job}")
    flags = [flag for flag, given in (("-i", stdin), ("-t", tty)) if given]
    where = [*chosen_options().kubectl(), *([] if chosen_options().namespace else [f"--namespace={cluster.namespace}"])]
    arguments = ["exec", *where, *flags, pod["metadata"]["name"], "-c", container, "--", *command]
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        fail("exec needs kubectl, which is not on PATH", f"install it, then: {shlex.join(['kubectl', *arguments])}")
    sys.stdout.flush()
    os.execv(kubectl, ["kubectl", *arguments])  # noqa: S606 -- no shell is meant to read it


def _by_name(job: str, pods: Sequence[Object], replica: str) -> Object:
    short = {pod["metadata"]["name"].removeprefix(f"{job}-"): pod for pod in pods}
    if replica not in short:
        fail(f"the job {job} has no pod {replica}", f"it has: {', '.join(short) or 'none'}", INVALID)
    return short[replica]


def _by_rank(job: Object, pods: Sequence[Object], rank: int) -> Object:
    name = job["metadata"]["name"]
    processes = processes_of(job)
    if not pods:
        fail(f"the job {name} has no pods", f"pytorchjob status {name}{here()}")
    if processes is None and rank:
        fail(
            "the number of processes in a pod is known in the pod only (nprocPerNode)",
            "choose a pod: --replica worker-0",
            INVALID,
        )
    place = rank // (processes or 1)
    if place >= len(pods):
        most = len(pods) * (processes or 1) - 1
        fail(f"the job {name} has no rank {rank}", f"its ranks are 0 to {most}", INVALID)
    return pods[place]


def processes_of(job: Object) -> int | None:
    """Return the worker processes of each pod: of the present round, else of the spec; None if only the pod knows."""
    elastic = (job.get("status") or {}).get("elastic") or {}
    if elastic.get("members") and elastic.get("worldSize"):
        return max(int(elastic["worldSize"]) // int(elastic["members"]), 1)
    given = str(job["spec"].get("nprocPerNode") or (job["spec"].get("elasticPolicy") or {}).get("nProcPerNode") or "")
    return int(given) if given.isdigit() else None
