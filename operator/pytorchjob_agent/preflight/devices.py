"""Reads the versions and the visible devices from the image's torch; never starts CUDA in this process."""

from types import ModuleType
from typing import Any

from pytorchjob_agent.preflight.facts import CUDA, Torch


def read_torch() -> Torch:
    """Import torch and read its versions and devices; on failure the result has the reason."""
    try:
        import torch
    except (ImportError, OSError) as error:  # the second: a library that torch needs is missing
        return Torch(problem=str(error))
    cuda: Any = getattr(torch.version, "cuda", None)
    version = str(torch.__version__)
    try:
        kind, visible = _visible(torch)
    except RuntimeError as error:  # variables that contradict each other
        return Torch(version, problem=str(error), cuda=cuda, nccl=_nccl(torch), kind=CUDA)
    return Torch(version, cuda=cuda, nccl=_nccl(torch), kind=kind, visible=visible)


def _visible(torch: ModuleType) -> tuple[str | None, int]:
    """Return the kind of devices and their number.

    `device_count` uses the driver's library. `is_available` starts CUDA, and then no forked process can use it.
    """
    if getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None):
        return CUDA, torch.cuda.device_count()
    accelerator = getattr(torch, "accelerator", None)  # torch 2.6
    device = accelerator.current_accelerator() if accelerator is not None else None
    return (device.type, accelerator.device_count()) if accelerator is not None and device is not None else (None, 0)


def _nccl(torch: ModuleType) -> str | None:
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except (AttributeError, RuntimeError, TypeError):  # a build without NCCL
        return None
