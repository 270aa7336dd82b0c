"""Decides whether workers start cold (a new interpreter) or warm (forked from one that has imported torch).

Pure: what the user asked for and what this machine can bear come in, the verdict with its reason goes out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pytorchjob_agent.contract.coordinator_endpoint import COORDINATOR
from pytorchjob_agent.contract.environment import ContractError

START_MODE = "PYTORCHJOB_START_MODE"
PRELOAD = "PYTORCHJOB_PRELOAD"  # modules to import beside torch, divided by commas

TORCH_MODULES = ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo")
"""What every worker of DDP imports; its constructor alone takes torch._dynamo, 900 modules and a third of the time."""

PRELOAD_BYTES = 400 << 20  # what the fork server holds beside the workers, measured with torch 2.15
_LEAST_MEMORY = 8 * PRELOAD_BYTES
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_TORCHS_OWN = "spawn"  # torchrun's default of --start-method


class StartMode(StrEnum):
    """What a user may ask for."""

    COLD = "cold"
    WARM = "warm"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Request:
    """What bears on the choice: torchrun's options, and the memory that all processes here may use, in bytes."""

    mode: StartMode
    no_python: bool = False
    run_path: bool = False
    start_method: str = _TORCHS_OWN
    numa_binding: bool = False
    memory: int | None = None  # None: there is no limit
    linux: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """How workers start, and why."""

    warm: bool
    reason: str


def mode(env: Mapping[str, str]) -> StartMode:
    """Return how the user wants workers to start; unset is cold."""
    text = env.get(START_MODE) or StartMode.COLD
    try:
        return StartMode(text)
    except ValueError:
        wanted = ", ".join(StartMode)
        raise ContractError(f"{START_MODE}: {text[:80]!r} is no way to start: expected one of {wanted}") from None


def modules(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the fork server imports, torch's part first."""
    names = [name.strip() for name in env.get(PRELOAD, "").split(",")]
    for name in names:
        if name and not _MODULE.fullmatch(name):
            raise ContractError(f"{PRELOAD}: {name[:80]!r} is no module's name: expected module,package.module")
    return (*TORCH_MODULES, *(name for name in names if name and name not in TORCH_MODULES))


def early(env: Mapping[str, str]) -> bool:
    """Whether it pays to begin the imports before torchrun's arguments are read, which takes torch itself."""
    return mode(env) != StartMode.COLD and bool(env.get(COORDINATOR)) and modules(env) == TORCH_MODULES


def decide(request: Request) -> Verdict:
    """Return cold where warm cannot be; `auto` also where the user's other choices or the memory speak against it."""
    if request.mode == StartMode.COLD:
        return Verdict(False, "nobody asked for another way")
    if not request.linux:
        return Verdict(False, "this is not Linux")
    if request.no_python:
        return Verdict(False, "--no-python: what runs is no Python program")
    if request.run_path:
        return Verdict(False, "--run-path: torch starts the script by --start-method")
    if request.numa_binding:
        return Verdict(False, "--numa-binding: a process is bound when it begins")
    if request.mode == StartMode.WARM:
        return Verdict(True, f"{START_MODE} is {StartMode.WARM}")
    return _auto(request)


def _auto(request: Request) -> Verdict:
    if request.start_method != _TORCHS_OWN:
        return Verdict(False, f"--start-method={request.start_method} was chosen")
    if request.memory is not None and request.memory < _LEAST_MEMORY:
        has, needs = request.memory >> 20, _LEAST_MEMORY >> 20
        return Verdict(False, f"the memory limit is {has} MiB: below {needs} MiB torch is not kept in memory twice")
    return Verdict(True, "nothing speaks against it")
