"""What of a job this machine cannot honour, each said once and before anything starts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.local import gpus
from pytorchjob_operator.model import PyTorchJob, main_container


class ClusterOnly(NamedTuple):
    """A field that only a cluster can honour: a local run replaces its value and prints a note."""

    instead: object
    note: str
    """For a job that sets the field; `{value}` is the job's value."""


RUN_POLICY = {
    "suspend": ClusterOnly(False, "runPolicy.suspend is ignored: the job runs"),
    "managed_by": ClusterOnly(None, "runPolicy.managedBy {value} is ignored: the job runs here"),
    "scheduling_policy": ClusterOnly(None, "runPolicy.schedulingPolicy is ignored: all replicas start at once"),
}
"""By the field of runPolicy; a field that is not listed works on this machine too."""
_HONOURED_FIELDS = ("fieldRef",)


def check(job: PyTorchJob) -> None:
    """Refuse a job whose commands are only in its images."""
    problems = [
        Problem(
            f"spec.pytorchReplicaSpecs.{replica_type}.template.spec.containers[name=pytorch].command",
            "is not set, and the image's own entry point is not known on this machine: name the command here,"
            " for example [python, train.py]",
        )
        for replica_type, spec in job.spec.pytorch_replica_specs.items()
        if not (main_container(spec.template) or {}).get("command")
    ]
    if problems:
        raise InvalidJob(problems)


def collect(job: PyTorchJob, devices: int, python: str) -> list[str]:
    """Everything that is ignored, in sentences; what several roles share is said once."""
    lines: list[str] = []
    for _, spec in job.spec.pytorch_replica_specs.items():
        lines.extend(_of_pod(spec.template.get("spec") or {}, main_container(spec.template) or {}, python))
    lines.extend(_of_job(job, devices))
    return list(dict.fromkeys(lines))


def _of_pod(pod: Mapping[str, Any], main: Mapping[str, Any], python: str) -> Iterator[str]:
    yield f"image {main.get('image')} is not used: commands run on this machine, `python` is {python}"
    if pod.get("initContainers"):
        yield f"init containers do not run: {_names(pod['initContainers'])}"
    others = [one for one in pod.get("containers") or () if one.get("name") != main.get("name")]
    if others:
        yield f"containers beside {main.get('name')} do not run: {_names(others)}"
    mounts = [f"{one.get('name')} at {one.get('mountPath')}" for one in main.get("volumeMounts") or ()]
    if mounts:
        yield f"volumes are not mounted: {', '.join(mounts)}"
    if main.get("workingDir"):
        yield f"workingDir {main['workingDir']} is used only where this machine has it"
    limits = (main.get("resources") or {}).get("limits") or {}
    if any(name in limits for name in ("cpu", "memory")):
        yield "limits of cpu and memory are not enforced"
    if any(main.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")):
        yield "probes and lifecycle hooks do not run"
    yield from _of_env(main)


def _of_env(main: Mapping[str, Any]) -> Iterator[str]:
    missing = [
        one["name"]
        for one in main.get("env") or ()
        if one.get("valueFrom") and not any(source in one["valueFrom"] for source in _HONOURED_FIELDS)
    ]
    if missing:
        yield (
            f"variables from Secrets, ConfigMaps and resources are not there: {', '.join(missing)};"
            " set them in your shell, replicas inherit it"
        )
    if main.get("envFrom"):
        yield "envFrom is not read: set the variables in your shell, replicas inherit it"


def _of_job(job: PyTorchJob, devices: int) -> Iterator[str]:
    wanted = gpus.total(job)
    if wanted > devices:
        yield f"the job asks for {wanted} GPUs, this machine has {devices}: replicas run without"
    elif devices and not wanted:
        yield f"the GPUs of this machine are not used: ask for them with resources.limits {gpus.RESOURCE}"
    policy, elastic = job.spec.run_policy, job.spec.elastic_policy
    for name, field in RUN_POLICY.items():
        if getattr(policy, name) != field.instead:
            yield field.note.format(value=getattr(policy, name))
    if elastic is not None and elastic.metrics:
        yield "elasticPolicy.metrics is ignored: nothing scales the job but you (SIGHUP)"


def _names(containers: list[dict[str, Any]]) -> str:
    return ", ".join(str(one.get("name")) for one in containers)
