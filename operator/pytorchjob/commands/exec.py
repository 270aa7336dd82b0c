"""`exec`, `shell`, `debug`, `port-forward`: what kubectl does in a pod, for the pod of a rank.

kubectl carries terminals and connections, because it does so on every cluster. Before that, the API server is asked
whether this person may do it: kubectl's own refusal names neither the next step nor an exit status of its own.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from pytorchjob.cluster.api import Cluster, Object
from pytorchjob.cluster.errors import ClusterError, NoPermission
from pytorchjob.commands.options import chosen_options, here, job_argument, with_cluster
from pytorchjob.commands.outcome import INVALID, fail
from pytorchjob.view import reading
from pytorchjob_operator import names

_PORTS = re.compile(r"(?:(?P<local>\d*):)?(?P<remote>\d+)")
_MOST_PORTS = 65535
_SHELL = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"
_PROFILES = ("general", "baseline", "restricted", "netadmin", "sysadmin")


@dataclass(frozen=True, slots=True)
class _Right:
    """What a person must be allowed to do; one of the verbs is enough, as versions of kubectl differ."""

    subresource: str
    verbs: tuple[str, ...] = ("create", "get")


EXEC, _ATTACH, _FORWARD = _Right("exec"), _Right("attach"), _Right("portforward")
_EPHEMERAL = _Right("ephemeralcontainers", ("patch",))

rank_option = click.option("--rank", type=click.IntRange(min=0), metavar="R", help="The pod of this rank. Default: 0.")
pod_argument = click.argument("pod", metavar="[POD]", required=False)
container_option = click.option(
    "-c", "--container", default=names.CONTAINER, show_default=True, metavar="NAME", help="Container."
)


@click.command("exec")
@job_argument
@click.argument("command", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED, required=True)
@rank_option
@click.option("--replica", metavar="NAME", help="The pod with this name, for example worker-3.")
@container_option
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
    pod = running_pod(cluster, job, rank, replica, "--replica")
    flags = [flag for flag, given in (("-i", stdin), ("-t", tty)) if given]
    _hand_over(cluster, [EXEC], ["exec", *flags, pod["metadata"]["name"], "-c", container, "--", *command])


@click.command("shell")
@job_argument
@pod_argument
@rank_option
@container_option
@with_cluster
def shell_command(cluster: Cluster, job: str, pod: str | None, rank: int | None, container: str) -> None:
    """Open a shell in the pod of a rank, or in POD, for example worker-3: bash if the image has it, else sh.

    Without a terminal the shell reads its commands from standard input. Needs kubectl on PATH.
    """
    name = running_pod(cluster, job, rank, pod)["metadata"]["name"]
    _hand_over(cluster, [EXEC], ["exec", _terminal(), name, "-c", container, "--", "sh", "-c", _SHELL])


@click.command("debug")
@job_argument
@pod_argument
@rank_option
@click.option("--image", metavar="IMAGE", help="Image of the new container. Default: that of --target.")
@click.option(
    "--target",
    default=names.CONTAINER,
    show_default=True,
    metavar="NAME",
    help="The container whose processes the new one sees.",
)
@click.option(
    "--profile",
    type=click.Choice(_PROFILES),
    default=_PROFILES[0],
    show_default=True,
    help="kubectl's name for the rights of the new container; `general` may trace processes.",
)
@with_cluster
def debug_command(
    cluster: Cluster, job: str, pod: str | None, rank: int | None, image: str | None, target: str, profile: str
) -> None:
    """Start a container with a shell inside the pod of a rank, or inside POD, for example worker-3.

    It is an ephemeral container: the pod is not started again, and the training continues. The pod keeps the container
    until the pod ends. It sees the processes of the target container, and the target's files below /proc/1/root.
    Needs kubectl on PATH.
    """
    found = running_pod(cluster, job, rank, pod)
    name, images = found["metadata"]["name"], {each["name"]: each["image"] for each in found["spec"]["containers"]}
    if target not in images:
        fail(f"the pod {name} has no container {target}", f"its containers are: {', '.join(images)}", INVALID)
    options = [f"--image={image or images[target]}", f"--target={target}", f"--profile={profile}"]
    _hand_over(cluster, [_EPHEMERAL, _ATTACH], ["debug", _terminal(), name, *options, "--", "sh", "-c", _SHELL])


@click.command("port-forward")
@job_argument
@click.argument("ports", metavar="[POD] [LOCAL:]REMOTE...", nargs=-1, required=True)
@rank_option
@click.option("--address", default="localhost", show_default=True, metavar="NAME", help="Where to listen.")
@with_cluster
def port_forward_command(cluster: Cluster, job: str, ports: tuple[str, ...], rank: int | None, address: str) -> None:
    """Connect ports of this machine to ports of the pod of a rank, or of POD, for example worker-3.

    `pytorchjob port-forward digits 6006` leads to TensorBoard in the pod of rank 0, `8000:6006` does so from the port
    8000. `:6006` chooses a free port. It ends with Ctrl-C, or with the pod. Needs kubectl on PATH.
    """
    pod, pairs = (None, ports) if _PORTS.fullmatch(ports[0]) else (ports[0], ports[1:])
    for pair in pairs:
        _check_ports(pair)
    if not pairs:
        raise click.UsageError("no port is given, for example 8000:6006")
    name = running_pod(cluster, job, rank, pod)["metadata"]["name"]
    _hand_over(cluster, [_FORWARD], ["port-forward", f"--address={address}", f"pod/{name}", *pairs])


def running_pod(cluster: Cluster, job: str, rank: int | None, replica: str | None, option: str = "POD") -> Object:
    """Return the pod of a rank, or the one with a name; ends the command if it is not there or has ended."""
    if rank is not None and replica is not None:
        raise click.UsageError(f"--rank and {option} exclude each other")
    found = cluster.job(job)
    pods = [pod for pod in cluster.pods(job) if not reading.deleting(pod)]
    pod = _by_name(job, pods, replica) if replica else _by_rank(found, pods, rank or 0)
    if reading.has_finished(pod):
        fail(f"the pod {pod['metadata']['name']} has ended ({reading.phase_of(pod)})", f"pytorchjob logs {job}")
    return pod


def kubectl_with(cluster: Cluster, rights: Iterable[_Right], arguments: Sequence[str]) -> list[str]:
    """Return the command of kubectl with the cluster that this command line chose; ends it if that cannot work."""
    verb, *rest = arguments
    for right in rights:
        _require(cluster, right)
    where = [*chosen_options().kubectl(), *([] if chosen_options().namespace else [f"--namespace={cluster.namespace}"])]
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        line = shlex.join(["kubectl", verb, *where, *rest])
        fail(f"{verb} needs kubectl, which is not on PATH", f"install it, then: {line}")
    return [kubectl, verb, *where, *rest]


def _hand_over(cluster: Cluster, rights: Iterable[_Right], arguments: Sequence[str]) -> None:
    program, *rest = kubectl_with(cluster, rights, arguments)
    sys.stdout.flush()
    os.execv(program, ["kubectl", *rest])  # noqa: S606 -- no shell is meant to read it


def _require(cluster: Cluster, right: _Right) -> None:
    """Raise NoPermission if this person may not do it; a cluster that does not tell leaves the answer to kubectl."""
    try:
        answers = [_may(cluster, verb, right.subresource) for verb in right.verbs]
    except ClusterError:
        return
    if any(answers):
        return
    what, place = f"{right.verbs[0]} pods/{right.subresource}", f"in the namespace {cluster.namespace}"
    check = f"kubectl auth can-i {right.verbs[0]} pods --subresource={right.subresource} -n {cluster.namespace}"
    raise NoPermission(f"you may not {what} {place}", f"ask an administrator for it; `{check}` checks it")


def _may(cluster: Cluster, verb: str, subresource: str) -> bool:
    asked = {"namespace": cluster.namespace, "verb": verb, "resource": "pods", "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool((cluster.create(review).get("status") or {}).get("allowed", True))


def _terminal() -> str:
    return "-it" if sys.stdin.isatty() else "-i"


def _check_ports(pair: str) -> None:
    found = _PORTS.fullmatch(pair)
    if found is None:
        raise click.UsageError(f"{pair!r} is not a port, nor two as in 8000:6006")
    for number in (found["local"] or "1", found["remote"]):
        if not 1 <= int(number) <= _MOST_PORTS:
            raise click.UsageError(f"{number} is not a port: ports are 1 to {_MOST_PORTS}")


def _by_name(job: str, pods: Sequence[Object], replica: str) -> Object:
    short = {pod["metadata"]["name"].removeprefix(f"{job}-"): pod for pod in pods}
    whole = {pod["metadata"]["name"]: pod for pod in pods}
    found = short.get(replica) or whole.get(replica)
    if found is None:
        fail(f"the job {job} has no pod {replica}", f"it has: {', '.join(short) or 'none'}", INVALID)
    return found


def _by_rank(job: Object, pods: Sequence[Object], rank: int) -> Object:
    name = job["metadata"]["name"]
    processes = processes_of(job)
    if not pods:
        fail(f"the job {name} has no pods", f"pytorchjob status {name}{here()}")
    if processes is None and rank:
        fail(
            "the number of processes in a pod is known in the pod only (nprocPerNode)",
            "choose a pod by its name, for example worker-0",
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
    return int(given) if given.isdecimal() and len(given) < 10 else None
