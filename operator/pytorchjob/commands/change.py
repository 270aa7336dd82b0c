"""`scale`, `suspend`, `resume`, `restart`: changes of a job's spec, which the operator then carries out."""

from contextlib import suppress
from typing import Any, NamedTuple

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import Missing
from pytorchjob.commands.deadline import deadline
from pytorchjob.commands.options import DURATION, here, job_argument, with_cluster
from pytorchjob.commands.outcome import INVALID, fail, suggest
from pytorchjob.screen.plain import reference
from pytorchjob.view import reading
from pytorchjob_operator.model import kept_saves
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.terminal import say

_WORKER = ReplicaType.WORKER.value
_SUSPENDED = "Suspended"
_NEVER = "Never"
_WAIT_SECONDS = 120.0


@click.command("scale")
@job_argument
@click.argument("workers", metavar="[N]", type=click.IntRange(min=1), required=False)
@click.option("--replicas", type=click.IntRange(min=1), metavar="N", help="The number of workers; the same as N.")
@click.option("--dry-run", is_flag=True, help="The API server checks the change and stores nothing.")
@with_cluster
def scale_command(cluster: Cluster, job: str, workers: int | None, replicas: int | None, dry_run: bool) -> None:
    """Change the number of workers of a job, without its Master.

    The other pods stay. An elastic job trains on and takes the new workers in.
    """
    count = replicas if workers is None else workers
    if count is None or (workers is not None and replicas not in (None, workers)):
        raise click.UsageError("give the number of workers once: `pytorchjob scale JOB N`, or --replicas N")
    found = _running(cluster, job, "scaled")
    specs = found["spec"]["pytorchReplicaSpecs"]
    if _WORKER not in specs:
        fail(f"the job {job} has no workers, only a Master", "add a Worker to its file and submit it again", INVALID)
    _check_range(job, found["spec"].get("elasticPolicy") or {}, count)
    before = specs[_WORKER].get("replicas", 1)
    cluster.patch(job, {"spec": {"pytorchReplicaSpecs": {_WORKER: {"replicas": count}}}}, dry_run=dry_run)
    if count == before:
        say(f"{reference(found)} has {count} {_plural(count)} already{_dry(dry_run)}")
    else:
        say(f"{reference(found)} scaled from {before} to {count} {_plural(count)}{_dry(dry_run)}")
        _note_queue(found, "stops the job and admits it again with its new size")


def _check_range(job: str, policy: dict[str, Any], count: int) -> None:
    """An autoscaler, and rendezvous itself, keep to the range of the elasticPolicy."""
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    if (low and count < low) or (high and count > high):
        limits = f"{low or 1} to {high}" if high else f"at least {low}"
        remedy = "choose a number in this range; the range itself is part of the job's file"
        fail(f"the elasticPolicy of {job} allows {limits} workers, got {count}", remedy, INVALID)


@click.command("suspend")
@job_argument
@with_cluster
def suspend_command(cluster: Cluster, job: str) -> None:
    """Delete the pods of a job and keep the job: `resume` starts it again.

    It continues from the newest save that outlives the pods; the command says if the job's file shows none.
    The pods get SIGTERM first, so that a script that saves on request to a volume loses no step.
    """
    _switch(cluster, job, _SUSPEND)


@click.command("resume")
@job_argument
@with_cluster
def resume_command(cluster: Cluster, job: str) -> None:
    """Start a suspended job again."""
    _switch(cluster, job, _RESUME)


class _Switch(NamedTuple):
    """A value of `suspend`, and the words for it."""

    suspend: bool
    done: str
    already: str
    kueue: str
    """What Kueue does then, if the job has a queue."""
    next_command: str


_SUSPEND = _Switch(True, "suspended", "suspended already", "may start the job again", "resume")
_RESUME = _Switch(False, "resumed", "not suspended", "decides when the job starts", "status")


def _switch(cluster: Cluster, job: str, to: _Switch) -> None:
    found = _running(cluster, job, to.done)
    if reading.suspended(found) is to.suspend:
        say(f"{reference(found)} is {to.already}")
        return
    if to.suspend:
        _note_saves(found)
    _set_suspend(cluster, job, to.suspend)
    say(f"{reference(found)} {to.done}")
    _note_queue(found, to.kueue)
    suggest(f"pytorchjob {to.next_command} {job}{here()}")


@click.command("restart")
@job_argument
@click.option("--replica", metavar="NAME", help="Only this pod, for example master-0 or worker-3.")
@click.option(
    "--timeout", type=DURATION, default=_WAIT_SECONDS, metavar="TIME", help="Time for the operator to stop the pods."
)
@with_cluster
def restart_command(cluster: Cluster, job: str, replica: str | None, timeout: float) -> None:
    """Start all pods of a job again, or one of them. It costs no restart of the job's limits.

    The whole job is suspended and resumed, so that no worker trains with an old one. It continues from the newest
    save that outlives the pods; the command says if the job's file shows none. If Kueue manages the job, its pods are
    deleted instead. One pod is deleted, and the operator creates it again; the others train on or wait, as after a
    lost pod.
    """
    found = _running(cluster, job, "restarted")
    if reading.suspended(found):
        fail(f"the job {job} is suspended, so nothing runs", f"pytorchjob resume {job}{here()}")
    if replica is not None:
        _restart_pod(cluster, found, replica)
        return
    _note_saves(found)
    if reading.queue_of(found):
        _delete_pods(cluster, found)
        return
    _set_suspend(cluster, job, True)
    try:
        over = f"the operator has not suspended the job {job} within {timeout:g} s"
        with deadline(timeout, over, "check that the operator runs: pytorchjob doctor; the job is resumed now"):
            _wait_until_suspended(cluster, job)
    finally:
        _set_suspend(cluster, job, False)
    say(f"{reference(found)} restarted")
    suggest(f"pytorchjob status {job}{here()}")


def _wait_until_suspended(cluster: Cluster, job: str) -> None:
    """Wait for the condition: from then on the operator deletes all pods, and creates new ones only afterwards."""
    for change in cluster.watch(job):
        if reading.condition(change.object, _SUSPENDED):
            return
        if change.is_deleted:
            fail(f"the job {job} was deleted meanwhile")


def _delete_pods(cluster: Cluster, job: Object) -> None:
    """Delete all pods, the Master's last: Kueue alone decides about `suspend`."""
    name = job["metadata"]["name"]
    if any((role or {}).get("restartPolicy") == _NEVER for role in job["spec"]["pytorchReplicaSpecs"].values()):
        remedy = "submit it again under another name"
        fail(f"the job {name} has restartPolicy {_NEVER}: without its pods it ends as failed", remedy, INVALID)
    for pod in reversed(cluster.pods(name)):
        with suppress(Missing):
            cluster.delete(f"pods/{pod['metadata']['name']}")
    say(f"{reference(job)} restarted: the operator creates its pods again")


def _restart_pod(cluster: Cluster, job: Object, replica: str) -> None:
    name = job["metadata"]["name"]
    role = replica.rpartition("-")[0]
    pods = {pod["metadata"]["name"].removeprefix(f"{name}-"): pod for pod in cluster.pods(name)}
    if replica not in pods:
        fail(f"the job {name} has no pod {replica}", f"it has: {', '.join(pods) or 'none'}", INVALID)
    if job["spec"]["pytorchReplicaSpecs"].get(role.capitalize(), {}).get("restartPolicy") == _NEVER:
        remedy = f"`pytorchjob restart {name}{here()}` restarts the whole job"
        fail(f"{replica} has restartPolicy {_NEVER}: without it the job ends as failed", remedy, INVALID)
    cluster.delete(f"pods/{name}-{replica}")
    say(f"pod/{name}-{replica} deleted; the operator creates it again")


def _running(cluster: Cluster, name: str, verb: str) -> Object:
    """Return a job that has not ended; ends the process if it has."""
    found = cluster.job(name)
    if end := reading.ended(found):
        fail(f"the job {name} has ended ({end}) and cannot be {verb}", "submit it again under another name")
    return found


def _set_suspend(cluster: Cluster, job: str, value: bool) -> None:
    cluster.patch(job, {"spec": {"runPolicy": {"suspend": value}}})


def _note_saves(job: Object) -> None:
    """Note what the job loses with its pods, as far as its spec shows it."""
    found, memory = kept_saves.kept(job["spec"]), kept_saves.in_memory(job["spec"])
    if found is kept_saves.Kept.DURABLE:
        say("note: the job continues from the newest save that is on durable storage", err=True)
    elif found is kept_saves.Kept.NOTHING and memory:
        words = "its checkpoints are in the pods' memory alone and are deleted with them: it starts again at step 0"
        say(f"warning: {words}", err=True)
    elif found is kept_saves.Kept.NOTHING:
        words = "it mounts no volume that outlives its pods: only what its script has stored elsewhere is left"
        say(f"warning: {words}", err=True)


def _note_queue(job: Object, what: str) -> None:
    """Note what Kueue does with the job, if it has a queue."""
    if queue := reading.queue_of(job):
        say(f"note: the job belongs to Kueue's queue {queue}, which {what}", err=True)


def _plural(count: int) -> str:
    return "worker" if count == 1 else "workers"


def _dry(dry_run: bool) -> str:
    return " (server dry run)" if dry_run else ""
