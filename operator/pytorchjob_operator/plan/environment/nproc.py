"""PET_NPROC_PER_NODE: how many processes torchrun starts in a pod for `auto`, `cpu` and `gpu`.

The number for a CPU pod is its CPU limit, because torchrun would count all CPUs of the machine. torchrun itself counts
the devices that torch knows, because it sees which are visible. The pod's limits give the number of other devices. A
resource claim and an unknown resource may be a GPU: then torchrun counts too.
"""

import math
from collections.abc import Iterable
from typing import Any

from pytorchjob_operator.model import main_container
from pytorchjob_operator.plan import quantity

_WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
COUNTED_BY_TORCH = ("nvidia.com/*", "amd.com/*")
ACCELERATORS = (
    "habana.ai/gaudi",
    "huawei.com/Ascend*",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
    "aws.amazon.com/neurondevice",
    "cambricon.com/mlu",
    "cambricon.com/mlu370",
    "hygon.com/dcu",
    "hygon.com/dcunum",
    "metax-tech.com/gpu",
    "mthreads.com/gpu",
)
"""Resource names of devices; a `*` at the end matches anything. The operator's settings can add more.

Vendors also have resource names for parts of a device (memory, cores, monitoring); these are not devices.
"""
NO_ACCELERATORS = (
    "rdma/*",
    "vpc.amazonaws.com/*",
    "mellanox.com/*",
    "intel.com/*",
    "openshift.io/*",
    "devices.kubevirt.io/*",
    "smarter-devices/*",
    "kubernetes.io/*",
)
"""Resource names of network cards and other devices that do not train."""
_PART = "-memory"

_MOST = 9999
_BY_DEVICES = ("auto", "gpu", "xpu")
_BY_CPUS = ("auto", "cpu")


def per_node(given: str | None, template: dict[str, Any], accelerators: Iterable[str] = ()) -> str | None:
    """Return PET_NPROC_PER_NODE for the pods of this template: the number if it is known, otherwise the given value."""
    resources = (main_container(template) or {}).get("resources") or {}
    limits = resources.get("limits") or {}
    if any(_matches(key, COUNTED_BY_TORCH) for key in limits):
        return given
    known = (*ACCELERATORS, *accelerators)
    devices = sum(_whole(value) for key, value in limits.items() if _matches(key, known) and not key.endswith(_PART))
    if given in _BY_DEVICES and devices:
        return str(devices)
    if given == "auto" and (resources.get("claims") or any(_may_train(key) for key in limits)):
        return given
    cpus = _whole(limits.get("cpu"))
    return str(cpus) if given in _BY_CPUS and cpus else given


def gpus(template: dict[str, Any]) -> int:
    """Return how many whole GPUs the container's limits ask for; shared ones may be fewer than that."""
    limits = ((main_container(template) or {}).get("resources") or {}).get("limits") or {}
    return sum(_whole(limits.get(key)) for key in _WHOLE_GPUS)


def _may_train(key: str) -> bool:
    return "/" in key and not _matches(key, NO_ACCELERATORS)


def _whole(value: object) -> int:
    """Return the number rounded up; 0 for a value that is not a possible count of devices in a pod."""
    number = quantity.parse(value)
    return math.ceil(number) if number is not None and 0 < number <= _MOST else 0


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(key == pattern or (pattern.endswith("*") and key.startswith(pattern[:-1])) for pattern in patterns)
