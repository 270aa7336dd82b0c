"""The table of checks: each one finds the problems in the facts, with their fixes. Pure.

By default a problem with which the job cannot work fails, and all others warn; `policy` applies the user's settings.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from pytorchjob_agent.contract.environment import (
    GPUS,
    MASTER_ADDR,
    MASTER_PORT,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_RDZV_ENDPOINT,
    PREFLIGHT,
    RANK,
    START_MODE,
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
    """What is wrong, and the fix."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found, in a few words, and its problems."""

    found: str
    problems: tuple[CheckProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table; a variable's name contains its name."""

    name: str
    find: Callable[[Facts], CheckResult]
    fatal: bool = False


def _result(found: str, wrong: bool, what: str, remedy: str) -> CheckResult:
    return CheckResult(found, (CheckProblem(what, remedy),) if wrong else ())


def _processes(number: int | None) -> str:
    return "1 process" if number in (None, 1) else f"{number} processes"


def _contract(facts: Facts) -> CheckResult:
    if facts.contract:
        return _result("", True, facts.contract, "correct the variable in the pod template, or remove it there")
    asked = facts.request.nproc
    wrong = re.fullmatch(r"-[0-9]+|0+", asked) is not None
    what = f"{asked} processes per node: expected at least 1"
    return _result(
        f"nproc per node: {asked}", wrong, what, "set --nproc-per-node or spec.nprocPerNode to 1 or more, or auto"
    )


def _torch(facts: Facts) -> CheckResult:
    torch = facts.torch
    versions = f"torch {torch.version}, CUDA {torch.cuda or 'none'}, NCCL {torch.nccl or 'none'}, Python {facts.python}"
    what = f"torch cannot be imported: {torch.problem}"
    return _result(
        versions, torch.version is None, what, "install torch 2.4 or newer in the image, e.g. in the Dockerfile"
    )


def _gpus(facts: Facts) -> CheckResult:
    """Fail if GPUs are requested, by `gpu`, by a variable that assigns some or by limits, and there are too few."""
    torch, nproc = facts.torch, facts.nproc
    if torch.version is None:
        return CheckResult("unknown without torch")
    found = f"{torch.visible} visible, {_processes(nproc)}" if torch.kind else "a build of torch for CPUs"
    variable, limit = _assigning_variable(facts), facts.env.get(GPUS, "")
    asked = facts.request.nproc == "gpu" or variable
    # Processes that share a GPU see fewer than the limit has.
    lost = not torch.visible and limit.isdecimal() and _CUDA_DEVICES not in facts.env and facts.request.nproc != "cpu"
    few = lost or (bool(asked) and torch.visible < (nproc or 1))
    assigned = f"{variable} assigns GPUs" if variable else "--nproc-per-node is gpu"
    by = f"resources.limits has {limit} GPUs" if lost else assigned
    why = f" ({torch.problem})" if torch.problem else ""
    processes = "" if facts.request.nproc == "gpu" else f" for {_processes(nproc)}"
    ready = torch.visible and facts.env.get(START_MODE) == "ready"
    return _result(
        f"{found}; startMode Ready takes about 0.5 GB of a GPU for each process" if ready else found,
        few,
        f"{by}, but torch {torch.version} sees {torch.visible}{why}{processes}",
        "request as many GPUs as processes (resources.limits of the container), with a build of torch for the node's "
        f"driver; if processes share GPUs on purpose set {PREFLIGHT}_GPUS=warn",
    )


def _assigning_variable(facts: Facts) -> str:
    """Return the variable that assigns GPUs to this container by name; empty if there is none."""
    if facts.torch.kind not in (CUDA, None) or facts.request.nproc == "cpu":
        return ""
    # Slices (MIG-...) prove nothing: torch sees a single one, and each process may choose its own.
    variable = _CUDA_DEVICES if _CUDA_DEVICES in facts.env else _NVIDIA_DEVICES
    return variable if _WHOLE_DEVICE.match(facts.env.get(variable, "").strip()) else ""


def _devices(facts: Facts) -> CheckResult:
    text, visible, nproc = facts.env.get(_CUDA_DEVICES), facts.torch.visible, facts.nproc
    if text is None:
        devices = "1 device" if visible == 1 else f"{visible} devices"
        what = f"{_processes(nproc)} share {devices}: two of them on one device fail with NCCL"
        remedy = f"start {_processes(visible)}, or --nproc-per-node auto"
        return _result(f"{_CUDA_DEVICES} is unset: all", 0 < visible < (nproc or 1), what, remedy)
    entries = [entry.strip() for entry in text.split(",")] if text.strip() else []
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    odd = [entry for entry in entries if not _DEVICE.fullmatch(entry) and entry not in ("-1", "NoDevFiles")]
    problems = []
    if twice:
        what = f"{_CUDA_DEVICES}: {text[:80]!r} names {twice[0]!r} twice: CUDA then sees no device"
        problems.append(CheckProblem(what, "name each device once"))
    if odd:
        what = f"{_CUDA_DEVICES}: {text[:80]!r}: {odd[0]!r} is not a device: CUDA ignores it and all entries after it"
        problems.append(CheckProblem(what, "write numbers or UUIDs (GPU-..., MIG-...) separated by commas"))
    return CheckResult(f"{_CUDA_DEVICES}: {text[:80]!r}", tuple(problems))


def _shm(facts: Facts) -> CheckResult:
    size, need = facts.machine.shm, SHM_PER_PROCESS * (facts.nproc or 1)
    found = "there is no shared memory" if size is None else f"{size // MIB} MiB"
    what = f"{found} in /dev/shm for {_processes(facts.nproc)}: DataLoader workers and NCCL die when it is full"
    remedy = f"mount an emptyDir of medium Memory at /dev/shm, of {need // MIB} MiB or more"
    # A pod without devices often has no DataLoader workers; torch names the cause if theirs is too small.
    few_demands = facts.torch.version is not None and not facts.torch.visible
    return _result(found, size is None or (size < need and not few_demands), what, remedy)


def _nofile(facts: Facts) -> CheckResult:
    files, core = facts.machine.nofile, facts.machine.core
    cores = "core dumps" if core is None else f"core dumps up to {core // MIB} MiB" if core else "no core dumps"
    what = f"{files} open files: DataLoader workers pass each tensor by one"
    remedy = f"raise `ulimit -n` to {LEAST_FILES} or more, on a node in the container runtime's LimitNOFILE"
    number = "unlimited" if files is None else str(files)
    found = f"{number} open files, {cores}"
    return _result(found, files is not None and files < LEAST_FILES, what, remedy)


def _memlock(facts: Facts) -> CheckResult:
    machine = facts.machine
    limit = machine.memlock
    found = "unlimited" if limit is None else f"{limit // 1024} KiB"
    wrong = machine.infiniband and limit is not None and limit < LEAST_PINNED
    what = f"there is InfiniBand, but only {found} of memory may be pinned: NCCL cannot register its buffers"
    remedy = "add the capability IPC_LOCK to the container, or raise LimitMEMLOCK of the container runtime"
    return _result(found if machine.infiniband else f"{found}, no InfiniBand", wrong, what, remedy)


def _cpu(facts: Facts) -> CheckResult:
    text, nproc = facts.env.get(_THREADS), facts.nproc or 1
    limit = facts.machine.cpus
    first = (text or "").partition(",")[0].strip()
    if text and not re.fullmatch("[0-9]+", first):
        what = f"{_THREADS}: {text[:80]!r} is not a number"
        return _result("", True, what, "set it to the number of threads per process, or remove it")
    # torchrun gives each of several processes one thread; a single process uses all cores that it sees.
    threads = int(first[:9]) if first else facts.machine.cores if nproc == 1 else 1
    found = f"{nproc} x {threads} threads"
    if limit is None:
        return CheckResult(f"{found}, no limit")
    what = f"{_processes(nproc)} x {threads} threads share {limit:g} CPUs (the container's limit): they are throttled"
    fitting = max(1, int(limit / nproc))
    remedy = f"set {_THREADS}={fitting}" if threads > fitting else "start fewer processes"
    remedy += ", or raise the limit in resources.limits.cpu"
    return _result(f"{found}, limit {limit:g}", nproc * threads > math.ceil(limit), what, remedy)


def _memory(facts: Facts) -> CheckResult:
    limit, need = facts.machine.memory, MEMORY_PER_PROCESS * ((facts.nproc or 1) + 1)
    if limit is None:
        return CheckResult("no limit")
    processes = f"{_processes(facts.nproc)} and the agent"
    what = f"{limit // MIB} MiB (the container's limit) for {processes}: torch alone needs more"
    remedy = f"raise resources.limits.memory above {need // MIB} MiB"
    return _result(f"limit {limit // MIB} MiB", limit < need, what, remedy)


def _files(facts: Facts) -> CheckResult:
    problems = tuple(
        CheckProblem(
            f"{place.name}: {place.path[:200]} cannot be written", "mount an emptyDir there, or set another path"
        )
        for place in facts.places
        if not place.writable
    )
    return CheckResult(", ".join(f"{place.name} {place.path[:80]}" for place in facts.places), problems)


def _endpoint(facts: Facts) -> CheckResult:
    endpoint = facts.endpoint
    if endpoint is None:
        return CheckResult("not tried")
    address = f"{endpoint.host[:253]}:{endpoint.port}"
    found = f"{address} answers" if not endpoint.problem else f"{address} is this member's to open"
    what = f"{address} does not answer: {endpoint.problem}"
    remedy = (
        "check that the job's Service exists, that the pod of that name runs, and that no NetworkPolicy blocks the port"
    )
    # A name that does not resolve is wrong for the member that opens the port too: the others would not find it.
    return _result(found, bool(endpoint.problem) and not (endpoint.ours and endpoint.resolves), what, remedy)


def _interfaces(facts: Facts) -> CheckResult:
    there = facts.machine.interfaces
    have = ", ".join(there[:20])
    nccl, gloo = facts.env.get(_NCCL_INTERFACES, ""), facts.env.get(_GLOO_INTERFACES, "")
    wrong = [(_GLOO_INTERFACES, name) for name in gloo.split(",") if name and name not in there]
    exact, wanted = nccl.startswith("="), [name for name in nccl.removeprefix("=").split(",") if name]
    fits = [here for here in there for name in wanted if (here == name if exact else here.startswith(name))]
    if wanted and not nccl.startswith("^") and not fits:
        wrong.append((_NCCL_INTERFACES, nccl))
    problems = (
        CheckProblem(
            f"{variable}: there is no interface {name[:80]!r}", f"set it to one of {have}, or remove the variable"
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
            f"{name}={env[name][:80]}, but {twin}={env[twin][:80]}",
            "remove both, so that the operator sets them, or set them alike",
        )
        for name, twin in _SAME
        if env.get(name) and env.get(twin) and env[name] != env[twin]
    ]
    if request.nodes > 1 and not request.addressed:
        what = f"{PET_NNODES} or --nnodes is {request.nodes}, but there is no rendezvous endpoint"
        problems.append(CheckProblem(what, f"set {PET_RDZV_ENDPOINT}, or {PET_MASTER_ADDR} and {PET_NODE_RANK}"))
    if env.get(_NO_INFINIBAND) == "0" and not facts.machine.infiniband:
        what = f"{_NO_INFINIBAND}=0, but there is no /dev/infiniband"
        problems.append(
            CheckProblem(what, f"request the adapter in resources.limits (rdma/...), or set {_NO_INFINIBAND}=1")
        )
    return CheckResult("consistent", tuple(problems))


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
