"""Judges each fact: what was found, what is wrong with it and what would be right. Pure.

What cannot work at all fails unless the user decides otherwise; all the rest only warns.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from pytorchjob_agent.contract.environment import (
    MASTER_ADDR,
    MASTER_PORT,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_RDZV_ENDPOINT,
    PREFLIGHT,
    RANK,
    WORLD_SIZE,
)
from pytorchjob_agent.preflight.facts import CUDA, Facts

MIB = 1024 * 1024
SHM_PER_PROCESS = 128 * MIB  # twice the default of containers, which is too small for one DataLoader
MEMORY_PER_PROCESS = 256 * MIB  # torch alone, imported, on a CPU
LEAST_FILES = 4096
LEAST_PINNED = 1024 * MIB

_CUDA_DEVICES = "CUDA_VISIBLE_DEVICES"
_NVIDIA_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_THREADS = "OMP_NUM_THREADS"
_NCCL_INTERFACES = "NCCL_SOCKET_IFNAME"
_GLOO_INTERFACES = "GLOO_SOCKET_IFNAME"
_NO_INFINIBAND = "NCCL_IB_DISABLE"
_WHOLE_DEVICE = re.compile(r"[0-9]+|GPU-")
_DEVICE = re.compile(r"[0-9]+|(GPU|MIG)-\S+")
_SAME = ((MASTER_ADDR, PET_MASTER_ADDR), (MASTER_PORT, PET_MASTER_PORT), (RANK, PET_NODE_RANK))


@dataclass(frozen=True, slots=True)
class CheckProblem:
    """What is wrong, and what would be right."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was found, in a few words, and what is wrong with it."""

    found: str
    problems: tuple[CheckProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table: its name is part of a variable's."""

    name: str
    judge: Callable[[Facts], CheckResult]
    fatal: bool = False


def _one(found: str, wrong: bool, what: str, remedy: str) -> CheckResult:
    return CheckResult(found, (CheckProblem(what, remedy),) if wrong else ())


def _processes(number: int | None) -> str:
    return "1 process" if number in (None, 1) else f"{number} processes"


def _contract(facts: Facts) -> CheckResult:
    if facts.contract:
        return _one("", True, facts.contract, "mend the variable in the pod template, or leave it to the operator")
    asked = facts.request.nproc
    wrong = re.fullmatch(r"-[0-9]+|0+", asked) is not None
    what = f"{asked} processes per node: expected at least 1"
    return _one(
        f"nproc per node: {asked}", wrong, what, "set --nproc-per-node or spec.nprocPerNode to 1 or more, or auto"
    )


def _torch(facts: Facts) -> CheckResult:
    torch = facts.torch
    versions = f"torch {torch.version}, CUDA {torch.cuda or 'none'}, NCCL {torch.nccl or 'none'}, Python {facts.python}"
    what = f"torch cannot be imported: {torch.problem}"
    return _one(
        versions, torch.version is None, what, "install torch 2.4 or newer in the image, e.g. in the Dockerfile"
    )


def _gpus(facts: Facts) -> CheckResult:
    """Fail where GPUs are asked for, by the word `gpu` or by a variable that hands some out, and are too few."""
    torch, nproc = facts.torch, facts.nproc
    if torch.version is None:
        return CheckResult("unknown without torch")
    found = f"{torch.visible} visible, {_processes(nproc)}" if torch.kind else "a build of torch for CPUs"
    variable = _hands_out(facts)
    asked = facts.request.nproc == "gpu" or variable
    few = bool(asked) and torch.visible < max(nproc or 0, 1)
    by = f"{variable} hands out GPUs" if variable else "--nproc-per-node is gpu"
    why = f" ({torch.problem})" if torch.problem else ""
    processes = "" if facts.request.nproc == "gpu" else f" for {_processes(nproc)}"
    return _one(
        found,
        few,
        f"{by}, but torch {torch.version} sees {torch.visible}{why}{processes}",
        "ask for as many GPUs as processes (resources.limits of the container), with a build of torch for the node's "
        f"driver; if processes share GPUs on purpose set {PREFLIGHT}_GPUS=warn",
    )


def _hands_out(facts: Facts) -> str:
    """Return the variable that gives this container GPUs by name; empty where none does, or says `none`."""
    if facts.torch.kind not in (CUDA, None) or facts.request.nproc == "cpu":
        return ""
    # Slices (MIG-...) prove nothing: torch sees one of them, and each process may choose its own.
    variable = _CUDA_DEVICES if _CUDA_DEVICES in facts.env else _NVIDIA_DEVICES
    return variable if _WHOLE_DEVICE.match(facts.env.get(variable, "").strip()) else ""


def _devices(facts: Facts) -> CheckResult:
    text, visible, nproc = facts.env.get(_CUDA_DEVICES), facts.torch.visible, facts.nproc
    if text is None:
        what = f"{_processes(nproc)} share {visible} devices: two of them on one device fail with NCCL"
        remedy = f"start {_processes(visible)}, or --nproc-per-node auto"
        return _one(f"{_CUDA_DEVICES} is unset: all", 0 < visible < (nproc or 0), what, remedy)
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    odd = [entry for entry in entries if not _DEVICE.fullmatch(entry) and entry not in ("-1", "NoDevFiles")]
    problems = []
    if twice:
        what = f"{_CUDA_DEVICES}: {text[:80]!r} names {twice[0]!r} twice: CUDA then sees no device at all"
        problems.append(CheckProblem(what, "name each device once"))
    if odd:
        what = f"{_CUDA_DEVICES}: {text[:80]!r}: {odd[0]!r} is no device: CUDA ignores it and all behind it"
        problems.append(CheckProblem(what, "write numbers or UUIDs (GPU-..., MIG-...) with commas between them"))
    return CheckResult(f"{_CUDA_DEVICES}: {text[:80]!r}", tuple(problems))


def _shm(facts: Facts) -> CheckResult:
    size, need = facts.machine.shm, SHM_PER_PROCESS * max(facts.nproc or 1, 1)
    found = "there is no shared memory" if size is None else f"{size // MIB} MiB"
    what = f"{found} in /dev/shm for {_processes(facts.nproc)}: DataLoader workers and NCCL die when it is full"
    remedy = f"mount an emptyDir of medium Memory at /dev/shm, of {need // MIB} MiB or more"
    return _one(found, (size or 0) < need, what, remedy)


def _nofile(facts: Facts) -> CheckResult:
    files, core = facts.machine.nofile, facts.machine.core
    cores = "core dumps" if core is None else f"core dumps up to {core // MIB} MiB" if core else "no core dumps"
    what = f"{files} open files: DataLoader workers pass each tensor by one"
    remedy = f"raise `ulimit -n` to {LEAST_FILES} or more, on a node in the container runtime's LimitNOFILE"
    found = f"{'unlimited' if files is None else files} open files, {cores}"
    return _one(found, files is not None and files < LEAST_FILES, what, remedy)


def _memlock(facts: Facts) -> CheckResult:
    machine = facts.machine
    limit = machine.memlock
    found = "unlimited" if limit is None else f"{limit // 1024} KiB"
    wrong = machine.infiniband and limit is not None and limit < LEAST_PINNED
    what = f"there is InfiniBand, but only {found} of memory may be pinned: NCCL cannot register its buffers"
    remedy = "add the capability IPC_LOCK to the container, or raise LimitMEMLOCK of the container runtime"
    return _one(found if machine.infiniband else f"{found}, no InfiniBand", wrong, what, remedy)


def _cpu(facts: Facts) -> CheckResult:
    text, nproc = facts.env.get(_THREADS), facts.nproc or 1
    limit = facts.machine.cpus
    first = (text or "").partition(",")[0].strip()
    if text and not re.fullmatch("[0-9]+", first):
        what = f"{_THREADS}: {text[:80]!r} is no number"
        return _one("", True, what, "write a number of threads per process, or leave it out")
    # torchrun gives each of several processes one thread; a single one takes all cores that it sees.
    threads = int(first[:9]) if first else facts.machine.cores if nproc == 1 else 1
    found = f"{nproc} x {threads} threads, {'no limit' if limit is None else f'limit {limit:g}'}"
    what = (
        f"{_processes(nproc)} x {threads} threads share {limit or 0:g} CPUs (the container's limit): they are throttled"
    )
    fitting = max(1, int((limit or 1) // nproc))
    remedy = f"set {_THREADS}={fitting}" if threads > fitting else "start fewer processes"
    remedy += ", or raise the limit in resources.limits.cpu"
    return _one(found, limit is not None and nproc * threads > max(1, math.ceil(limit)), what, remedy)


def _memory(facts: Facts) -> CheckResult:
    limit, need = facts.machine.memory, MEMORY_PER_PROCESS * ((facts.nproc or 1) + 1)
    if limit is None:
        return CheckResult("no limit")
    processes = f"{_processes(facts.nproc)} and the agent"
    what = f"{limit // MIB} MiB (the container's limit) for {processes}: torch alone needs more"
    remedy = f"raise resources.limits.memory above {need // MIB} MiB"
    return _one(f"limit {limit // MIB} MiB", limit < need, what, remedy)


def _files(facts: Facts) -> CheckResult:
    problems = tuple(
        CheckProblem(
            f"{place.name}: {place.path[:200]} cannot be written", "mount an emptyDir there, or name another path"
        )
        for place in facts.places
        if not place.writable
    )
    return CheckResult(", ".join(f"{place.name} {place.path[:80]}" for place in facts.places), problems)


def _endpoint(facts: Facts) -> CheckResult:
    meeting = facts.meeting
    if meeting is None:
        return CheckResult("nobody was asked")
    address = f"{meeting.host[:253]}:{meeting.port}"
    found = f"{address} answers" if not meeting.problem else f"{address} is this member's to open"
    what = f"{address} does not answer: {meeting.problem}"
    remedy = (
        "see that the job's Service and the pod of that name are there and run, and that no NetworkPolicy is between"
    )
    # A name that does not resolve is wrong for the one who opens the port too: nobody else would find it.
    return _one(found, bool(meeting.problem) and not (meeting.ours and meeting.resolves), what, remedy)


def _interfaces(facts: Facts) -> CheckResult:
    there = facts.machine.interfaces
    have = ", ".join(there[:20])
    nccl, gloo = facts.env.get(_NCCL_INTERFACES, ""), facts.env.get(_GLOO_INTERFACES, "")
    wrong = [(_GLOO_INTERFACES, name) for name in gloo.split(",") if name and name not in there]
    exact, wanted = nccl.startswith("="), [name for name in nccl.lstrip("=").split(",") if name]
    fits = [one for one in there for name in wanted if (one == name if exact else one.startswith(name))]
    if wanted and not nccl.startswith("^") and not fits:
        wrong.append((_NCCL_INTERFACES, nccl))
    problems = (
        CheckProblem(
            f"{variable}: there is no interface {name[:80]!r}", f"name one of {have}, or leave the variable out"
        )
        for variable, name in wrong
    )
    return CheckResult(have, tuple(problems))


def _env(facts: Facts) -> CheckResult:
    env, request = facts.env, facts.request
    problems = [
        CheckProblem(f"{have} is set, but {lacks} is not", f"set both {RANK} and {WORLD_SIZE}, or neither")
        for have, lacks in ((RANK, WORLD_SIZE), (WORLD_SIZE, RANK))
        if env.get(have) and not env.get(lacks)
    ]
    problems += [
        CheckProblem(
            f"{one}={env[one][:80]}, but {two}={env[two][:80]}", "leave both to the operator, or set them alike"
        )
        for one, two in _SAME
        if env.get(one) and env.get(two) and env[one] != env[two]
    ]
    if request.nodes > 1 and not request.addressed:
        what = f"{PET_NNODES} or --nnodes is {request.nodes}, but nothing says where they meet"
        problems.append(CheckProblem(what, f"set {PET_RDZV_ENDPOINT}, or {PET_MASTER_ADDR} and {PET_NODE_RANK}"))
    if env.get(_NO_INFINIBAND) == "0" and not facts.machine.infiniband:
        what = f"{_NO_INFINIBAND}=0, but there is no /dev/infiniband"
        problems.append(
            CheckProblem(what, f"ask for the adapter in resources.limits (rdma/...), or set {_NO_INFINIBAND}=1")
        )
    return CheckResult("nothing contradicts itself", tuple(problems))


CHECKS = (
    Check("contract", _contract, fatal=True),
    Check("torch", _torch, fatal=True),
    Check("gpus", _gpus, fatal=True),
    Check("devices", _devices),
    Check("shm", _shm),
    Check("nofile", _nofile),
    Check("memlock", _memlock),
    Check("cpu", _cpu),
    Check("memory", _memory),
    Check("files", _files),
    Check("endpoint", _endpoint),
    Check("interfaces", _interfaces),
    Check("env", _env),
)
