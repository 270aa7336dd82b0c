"""Notes about the parts of a job that a local run ignores, printed once and before anything starts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from pytorchjob.local import gpus
from pytorchjob.local.cluster_only import RUN_POLICY
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob, deprecated, main_container

_HONOURED_FIELDS = ("fieldRef",)


def check(job: PyTorchJob) -> None:
    """Raise InvalidJob for a job whose commands exist only in its images."""
    problems = [
        Problem(
            f"spec.pytorchReplicaSpecs.{replica_type}.template.spec.containers[name=pytorch].command",
            "is required for a local run, because the image and its entry point are not used: set the command,"
            " for example [python, train.py]",
        )
        for replica_type, spec in job.spec.pytorch_replica_specs.items()
        if not (main_container(spec.template) or {}).get("command")
    ]
    if problems:
        raise InvalidJob(problems)


def collect(job: PyTorchJob, devices: int, python: str) -> list[str]:
    """Return one sentence for everything that is ignored; a note that several replica types share appears once."""
    lines: list[str] = []
    for _, spec in job.spec.pytorch_replica_specs.items():
        lines.extend(_of_pod(spec.template.get("spec") or {}, main_container(spec.template) or {}, python))
    lines.extend(_of_job(job, devices))
    return list(dict.fromkeys(lines))


def _of_pod(pod: Mapping[str, Any], main: Mapping[str, Any], python: str) -> Iterator[str]:
    yield f"image {main.get('image')} is not used: commands run on this machine, `python` is {python}"
    if pod.get("initContainers"):
        yield f"init containers do not run: {_names(pod['initContainers'])}"
    others = [container for container in pod.get("containers") or () if container.get("name") != main.get("name")]
    if others:
        yield f"containers other than {main.get('name')} do not run: {_names(others)}"
    mounts = [f"{mount.get('name')} at {mount.get('mountPath')}" for mount in main.get("volumeMounts") or ()]
    if mounts:
        yield f"volumes are not mounted: {', '.join(mounts)}"
    if main.get("workingDir"):
        yield f"workingDir {main['workingDir']} is used only if it exists on this machine"
    limits = (main.get("resources") or {}).get("limits") or {}
    if any(name in limits for name in ("cpu", "memory")):
        yield "cpu and memory limits are not enforced"
    if any(main.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")):
        yield "probes and lifecycle hooks do not run"
    yield from _of_env(main)


def _of_env(main: Mapping[str, Any]) -> Iterator[str]:
    missing = [
        variable["name"]
        for variable in main.get("env") or ()
        if variable.get("valueFrom") and not any(source in variable["valueFrom"] for source in _HONOURED_FIELDS)
    ]
    if missing:
        yield (
            f"variables from Secrets, ConfigMaps and resources are not set: {', '.join(missing)};"
            " set them in your shell, replicas inherit its environment"
        )
    if main.get("envFrom"):
        yield "envFrom is ignored: set the variables in your shell, replicas inherit its environment"


def _of_job(job: PyTorchJob, devices: int) -> Iterator[str]:
    wanted = gpus.total(job)
    if wanted > devices:
        yield f"the job requests {wanted} GPU{_s(wanted)}, this machine has {devices}: replicas run without GPUs"
    elif devices and not wanted:
        yield f"the GPUs of this machine are not used: request them with resources.limits {gpus.RESOURCE}"
    if job.spec.agent is not None and job.spec.agent.checkpoint is not None:
        directory = job.spec.agent.checkpoint.directory
        yield f"agent.checkpoint is ignored: all replicas save to {directory} of this machine"
    if job.spec.agent is not None and job.spec.agent.reserve_pods:
        yield "agent.reservePods is ignored: this machine has no other node"
    policy, elastic = job.spec.run_policy, job.spec.elastic_policy
    for name, field in RUN_POLICY.items():
        if getattr(policy, name) != field.instead:
            yield field.note.format(value=getattr(policy, name))
    if job.spec.managed_by is not None:
        yield f"managedBy {job.spec.managed_by} is ignored: the job runs here"
    yield from deprecated.warnings(job)
    if elastic is not None and elastic.metrics:
        yield "elasticPolicy.metrics is ignored: to scale the job, edit its file and send SIGHUP"


def _names(containers: list[dict[str, Any]]) -> str:
    return ", ".join(str(container.get("name")) for container in containers)


def _s(number: int) -> str:
    return "" if number == 1 else "s"
