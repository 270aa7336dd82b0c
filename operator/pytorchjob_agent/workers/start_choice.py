"""Decides whether workers start cold (a new interpreter) or warm (forked from a process that has imported torch).

Pure: the user's setting and the limits of this machine come in, the choice with its reason goes out. `warm` carries it
out for torch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import PRELOAD, START_MODE
from pytorchjob_agent.contract.reading import ContractError

TORCH_MODULES = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""What every DDP worker imports; its constructor alone imports torch._dynamo: 900 modules, a third of the time."""

PRELOAD_BYTES = 400 << 20  # memory of the fork server in addition to the workers', measured with torch 2.15
_LEAST_MEMORY = 8 * PRELOAD_BYTES
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_TORCHS_DEFAULT = "spawn"  # torchrun's default of --start-method


class RequestedStart(StrEnum):
    """The user's setting."""

    COLD = "cold"
    WARM = "warm"
    AUTO = "auto"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class StartRequest:
    """The user's setting, torchrun's options that bear on it, and the memory limit of all processes here, in bytes."""

    requested: RequestedStart
    no_python: bool = False
    run_path: bool = False
    start_method: str = _TORCHS_DEFAULT
    numa_binding: bool = False
    virtual_local_rank: bool = False
    memory: int | None = None  # None: no limit
    linux: bool = True


@dataclass(frozen=True, slots=True)
class StartChoice:
    """How workers start, and why."""

    warm: bool
    reason: str
    ready: bool = False
    """True if a process for each worker makes the context of its GPU before there is a program for it."""


def requested_start(env: Mapping[str, str]) -> RequestedStart:
    """Return the user's setting; unset is cold."""
    text = env.get(START_MODE) or RequestedStart.COLD
    try:
        return RequestedStart(text)
    except ValueError:
        expected = ", ".join(RequestedStart)
        raise ContractError(f"{START_MODE}: {text[:80]!r} is not a start mode: expected one of {expected}") from None


def preloaded_modules(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the fork server imports, torch's modules first."""
    names = [name.strip() for name in env.get(PRELOAD, "").split(",")]
    for name in names:
        if name and not _MODULE.fullmatch(name):
            raise ContractError(f"{PRELOAD}: {name[:80]!r} is not a module name: expected module,package.module")
    return (*TORCH_MODULES, *(name for name in names if name and name not in TORCH_MODULES))


def wants_warm(env: Mapping[str, str]) -> bool:
    """Return whether the user wants warm starts where they are possible."""
    return requested_start(env) != RequestedStart.COLD


def starts_early(env: Mapping[str, str]) -> bool:
    """Return whether the imports begin before torchrun's arguments are parsed: parsing them imports torch itself."""
    return wants_warm(env) and bool(env.get(COORDINATOR)) and preloaded_modules(env) == TORCH_MODULES


def choose_start(request: StartRequest) -> StartChoice:
    """Return cold where warm is impossible; `auto` is also cold if other options or the memory limit forbid it."""
    if request.requested == RequestedStart.COLD:
        return StartChoice(False, f"{START_MODE} is {RequestedStart.COLD}")
    if not request.linux:
        return StartChoice(False, "this system is not Linux")
    if request.no_python:
        return StartChoice(False, "--no-python: the command is not a Python program")
    if request.run_path:
        return StartChoice(False, "--run-path: torch starts the script by --start-method")
    if request.numa_binding:
        return StartChoice(False, "--numa-binding: torch binds a process when it starts")
    if request.requested in (RequestedStart.WARM, RequestedStart.READY):
        # With virtual local ranks each worker sees a device of its own, which is known when it starts.
        ready = request.requested == RequestedStart.READY and not request.virtual_local_rank
        return StartChoice(True, f"{START_MODE} is {request.requested}", ready)
    return _choose_automatically(request)


def _choose_automatically(request: StartRequest) -> StartChoice:
    if request.start_method != _TORCHS_DEFAULT:
        return StartChoice(False, f"--start-method={request.start_method} is set")
    if request.memory is not None and request.memory < _LEAST_MEMORY:
        has, needs = request.memory >> 20, _LEAST_MEMORY >> 20
        return StartChoice(False, f"the memory limit is {has} MiB: keeping torch in memory twice needs {needs} MiB")
    return StartChoice(True, "no option and no limit forbids it")
