"""Assigns the GPUs of this machine to replicas, as the device plugin of a cluster does.

If the machine has fewer GPUs than the job requests, no replica gets one: all replicas must choose the same backend.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorchjob_operator.model import PyTorchJob, main_container
from pytorchjob_operator.plan import replicas

RESOURCE = "nvidia.com/gpu"
_DEVICE = re.compile(r"nvidia\d+")


def found(env: Mapping[str, str], dev: Path = Path("/dev")) -> tuple[str, ...]:
    """The GPUs of this machine, limited to CUDA_VISIBLE_DEVICES of the caller's environment."""
    allowed = env.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return tuple(device.strip() for device in allowed.split(",") if device.strip())
    count = sum(1 for path in dev.glob("nvidia*") if _DEVICE.fullmatch(path.name))
    return tuple(str(index) for index in range(count))


def asked(template: Mapping[str, Any]) -> int:
    """The number of GPUs that one pod requests."""
    resources = (main_container(dict(template)) or {}).get("resources") or {}
    amount = (resources.get("limits") or {}).get(RESOURCE, 0)
    return int(amount) if str(amount).isdecimal() else 0


def total(job: PyTorchJob) -> int:
    """The number of GPUs that the whole job requests."""
    return sum(
        replicas.count(job, replica_type) * asked(spec.template)
        for replica_type, spec in job.spec.pytorch_replica_specs.items()
    )


class Pool:
    """The free devices; a replica gets all devices that it requests, or no device."""

    def __init__(self, devices: tuple[str, ...], job: PyTorchJob) -> None:
        self._free = list(devices) if 0 < total(job) <= len(devices) else []
        self._any = bool(devices)
        self._given: dict[str, list[str]] = {}

    def take(self, pod: Mapping[str, Any]) -> str | None:
        """Assign devices to one pod, as a value of CUDA_VISIBLE_DEVICES; None on a machine without GPUs."""
        wanted = asked(pod)
        taken = self._free[:wanted] if wanted <= len(self._free) else []
        del self._free[: len(taken)]
        self._given[pod["metadata"]["name"]] = taken
        return ",".join(taken) if self._any else None

    def give_back(self, pod: str) -> None:
        """Free the devices of a pod that is gone."""
        self._free.extend(self._given.pop(pod, ()))
