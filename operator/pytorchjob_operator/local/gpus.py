"""Which GPUs of this machine each replica sees, as the device plugin of a cluster would share them out.

All or none: where there are fewer than the job asks for, no replica gets any, so that all agree on the backend.
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
    """The devices of this machine, or those of them that the caller's own environment allows."""
    allowed = env.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        return tuple(one.strip() for one in allowed.split(",") if one.strip())
    count = sum(1 for one in dev.glob("nvidia*") if _DEVICE.fullmatch(one.name))
    return tuple(str(index) for index in range(count))


def asked(template: Mapping[str, Any]) -> int:
    """How many GPUs one pod asks for."""
    resources = (main_container(dict(template)) or {}).get("resources") or {}
    amount = (resources.get("limits") or {}).get(RESOURCE, 0)
    return int(amount) if str(amount).isdigit() else 0


def total(job: PyTorchJob) -> int:
    """How many GPUs the whole job asks for."""
    return sum(
        replicas.count(job, replica_type) * asked(spec.template)
        for replica_type, spec in job.spec.pytorch_replica_specs.items()
    )


class Pool:
    """The devices that are free; a replica that cannot have all it asks for gets none."""

    def __init__(self, devices: tuple[str, ...], job: PyTorchJob) -> None:
        self._free = list(devices) if 0 < total(job) <= len(devices) else []
        self._any = bool(devices)
        self._given: dict[str, list[str]] = {}

    def take(self, pod: Mapping[str, Any]) -> str | None:
        """Devices for one pod, as CUDA reads them; None on a machine without any."""
        wanted = asked(pod)
        taken = self._free[:wanted] if wanted <= len(self._free) else []
        del self._free[: len(taken)]
        self._given[pod["metadata"]["name"]] = taken
        return ",".join(taken) if self._any else None

    def give_back(self, pod: str) -> None:
        """The pod is gone: its devices are free."""
        self._free.extend(self._given.pop(pod, ()))
