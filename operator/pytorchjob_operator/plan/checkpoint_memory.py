"""The memory for checkpoints (spec.agent.checkpoint): a volume of the pod's memory in container `pytorch`.

A template that mounts a volume of its own at the directory keeps it.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_agent.contract.checkpoint_rules import (
    DEFAULT_COPIES,
    DEFAULT_COPY_RATE,
    DEFAULT_INTERVAL,
    CheckpointRules,
    DurableRules,
)
from pytorchjob_operator import names
from pytorchjob_operator.model import CheckpointMemory, DurableDirectory, PyTorchJob, main_container
from pytorchjob_operator.names import Reason
from pytorchjob_operator.plan import quantity

VOLUME = "pytorchjob-checkpoints"


def rules(policy: CheckpointMemory) -> CheckpointRules:
    """Return the settings as the agent reads them."""
    copies = DEFAULT_COPIES if policy.copies is None else policy.copies
    rate = DEFAULT_COPY_RATE if policy.copy_rate is None else int(quantity.parse(policy.copy_rate) or 1)
    memory = int(quantity.parse(policy.memory) or 1)
    return CheckpointRules(policy.directory, memory, copies, _durable(policy.durable), rate)


def problem(job: PyTorchJob) -> tuple[Reason, str] | None:
    """Return why durable saves would end with a pod, as reason and message of the condition ConfigValid; else None."""
    policy = job.spec.agent.checkpoint if job.spec.agent is not None else None
    if policy is None or policy.durable is None:
        return None
    for role, spec in job.spec.pytorch_replica_specs.items():
        mounts = (main_container(spec.template) or {}).get("volumeMounts") or ()
        if not any(_contains(str(mount.get("mountPath")), policy.durable.directory) for mount in mounts):
            words = f"no volume of {role} contains {policy.durable.directory}: what is saved there ends with the pod"
            return Reason.DURABLE_NOT_MOUNTED, f"spec.agent.checkpoint.durable.directory: {words}; mount a volume there"
    return None


def _contains(mount: str, directory: str) -> bool:
    return f"{directory}/".startswith(f"{mount.rstrip('/')}/")


def _durable(policy: DurableDirectory | None) -> DurableRules | None:
    if policy is None:
        return None
    seconds = policy.interval_seconds
    return DurableRules(policy.directory, DEFAULT_INTERVAL if seconds is None else seconds)


def into(pod: Mapping[str, Any], policy: CheckpointMemory) -> dict[str, Any]:
    """Return the spec of a pod with the volume, unless its container mounts another one there."""
    mounts = (main_container({"spec": dict(pod)}) or {}).get("volumeMounts") or ()
    if any(str(mount.get("mountPath")).rstrip("/") == policy.directory for mount in mounts):
        return dict(pod)
    containers = [
        _mounted(container, policy.directory) if container.get("name") == names.CONTAINER else container
        for container in pod["containers"]
    ]
    volume = {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": policy.memory}}
    return {**pod, "containers": containers, "volumes": [*(pod.get("volumes") or ()), volume]}


def _mounted(container: Mapping[str, Any], directory: str) -> dict[str, Any]:
    mount = {"name": VOLUME, "mountPath": directory}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}
