"""How many processes torchrun starts in a pod, where torchrun itself could only guess: `auto`, `cpu`, `gpu`.

A CPU pod's number comes from its limit: torchrun counts the whole machine's CPUs. Devices that torch counts itself are
left to it, because it knows which of them are visible; the other vendors' are counted by the pod's limits.
"""

import math
from collections.abc import Iterable
from typing import Any

from pytorchjob_operator.model import main_container
from pytorchjob_operator.plan import quantity

COUNTED_BY_TORCH = ("nvidia.com/*", "amd.com/gpu")
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
"""Resource names of devices; a `*` at the end stands for anything. More come from the operator's settings.

Vendors have names for parts of a device beside these (memory, cores, monitoring), which are no devices.
"""
_PART = "-memory"

_MOST = 9999
_BY_DEVICES = ("auto", "gpu", "xpu")
_BY_CPUS = ("auto", "cpu")


def per_node(given: str | None, template: dict[str, Any], accelerators: Iterable[str] = ()) -> str | None:
    """What PET_NPROC_PER_NODE says in the pods of this template: the number where it is known, else as it was given."""
    limits = ((main_container(template) or {}).get("resources") or {}).get("limits") or {}
    if any(_matches(key, COUNTED_BY_TORCH) for key in limits):
        return given
    known = (*ACCELERATORS, *accelerators)
    devices = sum(_whole(value) for key, value in limits.items() if _matches(key, known) and not key.endswith(_PART))
    if given in _BY_DEVICES and devices:
        return str(devices)
    cpus = _whole(limits.get("cpu"))
    return str(cpus) if given in _BY_CPUS and cpus else given


def _whole(value: object) -> int:
    """The next whole number, 0 for what is none or no count of devices in one pod."""
    number = quantity.parse(value)
    return math.ceil(number) if number is not None and 0 < number <= _MOST else 0


def _matches(key: str, patterns: Iterable[str]) -> bool:
    return any(key == one or (one.endswith("*") and key.startswith(one[:-1])) for one in patterns)
