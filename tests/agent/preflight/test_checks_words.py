"""The exact text of each check: its findings, each problem and its fix."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.environment import START_MODE
from pytorchjob_agent.preflight.checks import MIB
from pytorchjob_agent.preflight.facts import Endpoint, Facts, RequiredPath, RunRequest
from tests.agent.preflight.made_up import (
    AWAY,
    CPU_BUILD,
    FIND,
    GOOD,
    INFINIBAND,
    MACHINE,
    NO_GPU,
    NO_TORCH,
    ONE_GPU,
    facts,
    limits,
    words,
)

LOG = RequiredPath("PYTORCHJOB_TERMINATION_LOG", "/dev/log", False)
BROKEN = facts(contract="PET_NNODES: 'x' is not N")

FOUND = [
    ("contract", facts("4"), "nproc per node: 4", "the number of processes"),
    ("contract", facts("0"), "nproc per node: 0", "a number that is wrong"),
    ("contract", BROKEN, "", "nothing behind a broken variable"),
    ("torch", GOOD, "torch 2.15.0, CUDA 13.2, NCCL 2.30.7, Python 3.11.7", "all versions"),
    ("torch", facts(torch=CPU_BUILD), "torch 2.15.0+cpu, CUDA none, NCCL none, Python 3.11.7", "a build for CPUs"),
    ("gpus", GOOD, "2 visible, 2 processes", "as many as processes"),
    ("gpus", facts("1"), "2 visible, 1 process", "more than processes"),
    (
        "gpus",
        facts(env={START_MODE: "ready"}),
        "2 visible, 2 processes; startMode Ready takes about 0.5 GB of a GPU for each process",
        "ready",
    ),
    ("gpus", facts("npu"), "2 visible, 1 process", "a plugin's word counts as one process"),
    ("gpus", facts(torch=CPU_BUILD), "a build of torch for CPUs", "a build for CPUs"),
    ("gpus", facts("gpu", torch=NO_TORCH), "unknown without torch", "no torch"),
    ("devices", GOOD, "CUDA_VISIBLE_DEVICES is unset: all", "no choice"),
    ("devices", facts(env={"CUDA_VISIBLE_DEVICES": "0,1"}), "CUDA_VISIBLE_DEVICES: '0,1'", "a choice"),
    ("shm", GOOD, "4096 MiB", "its size"),
    ("shm", limits(shm=None), "there is no shared memory", "none"),
    ("nofile", GOOD, "1048576 open files, core dumps", "dumps of any size"),
    ("nofile", limits(core=0), "1048576 open files, no core dumps", "no dumps"),
    ("nofile", limits(core=100 * MIB), "1048576 open files, core dumps up to 100 MiB", "dumps that are limited"),
    ("nofile", limits(nofile=None), "unlimited open files, core dumps", "no limit of files"),
    ("memlock", GOOD, "unlimited, no InfiniBand", "no limit"),
    ("memlock", limits(memlock=65536), "64 KiB, no InfiniBand", "a limit"),
    ("memlock", facts(machine=INFINIBAND), "unlimited", "InfiniBand without a limit"),
    ("cpu", GOOD, "2 x 1 threads, no limit", "several processes"),
    ("cpu", facts("1"), "1 x 8 threads, no limit", "a single process uses all cores"),
    ("cpu", facts("npu"), "1 x 8 threads, no limit", "a plugin's word counts as one process"),
    ("cpu", limits("1", cpus=8), "1 x 8 threads, limit 8", "a limit"),
    ("cpu", limits("1", {"OMP_NUM_THREADS": "1"}, cpus=1.5), "1 x 1 threads, limit 1.5", "half a CPU"),
    ("cpu", facts("2", {"OMP_NUM_THREADS": "4,2,1"}), "2 x 4 threads, no limit", "the outermost of nested threads"),
    ("cpu", facts("1", {"OMP_NUM_THREADS": "all"}), "", "nothing behind a word"),
    ("memory", GOOD, "no limit", "no limit"),
    ("memory", limits(memory=8192 * MIB), "limit 8192 MiB", "a limit"),
    ("files", facts(places=(*GOOD.places, LOG)), "TMPDIR /tmp, PYTORCHJOB_TERMINATION_LOG /dev/log", "all places"),
    ("endpoint", GOOD, "x-master-0.x:23456 answers", "an answer"),
    ("endpoint", facts(endpoint=replace(AWAY, ours=True)), "x-master-0.x:23456 is this member's to open", "our own"),
    ("endpoint", facts(endpoint=None), "not tried", "a job of one pod"),
    ("interfaces", GOOD, "lo, eth0, eth10", "all names"),
    ("env", GOOD, "consistent", "all variables fit"),
]


@pytest.mark.parametrize(
    ("name", "seen", "expected"), [pytest.param(*row[:3], id=f"{row[0]}: {row[3]}") for row in FOUND]
)
def test_what_is_found(name: str, seen: Facts, expected: str) -> None:
    assert FIND[name](seen).found == expected


ENOUGH_GPUS = (
    "request as many GPUs as processes (resources.limits of the container), with a build of torch for the node's "
    "driver; if processes share GPUs on purpose set PYTORCHJOB_PREFLIGHT_GPUS=warn"
)
PROBLEMS = [
    (
        "contract",
        BROKEN,
        "PET_NNODES: 'x' is not N -> correct the variable in the pod template, or remove it there",
        "a variable",
    ),
    (
        "contract",
        facts("0"),
        "0 processes per node: expected at least 1 -> set --nproc-per-node or spec.nprocPerNode to 1 or more, or auto",
        "no process",
    ),
    (
        "torch",
        facts(torch=NO_TORCH),
        "torch cannot be imported: No module named 'torch' -> "
        "install torch 2.4 or newer in the image, e.g. in the Dockerfile",
        "no torch",
    ),
    (
        "gpus",
        facts("gpu", torch=NO_GPU),
        f"--nproc-per-node is gpu, but torch 2.15.0 sees 0 -> {ENOUGH_GPUS}",
        "gpu without a GPU",
    ),
    (
        "gpus",
        facts("4", {"CUDA_VISIBLE_DEVICES": "0"}, torch=replace(NO_GPU, problem="odd")),
        f"CUDA_VISIBLE_DEVICES assigns GPUs, but torch 2.15.0 sees 0 (odd) for 4 processes -> {ENOUGH_GPUS}",
        "a variable without a GPU",
    ),
    (
        "devices",
        facts("3"),
        "3 processes share 2 devices: two of them on one device fail with NCCL -> "
        "start 2 processes, or --nproc-per-node auto",
        "shared devices",
    ),
    (
        "devices",
        facts("2", torch=ONE_GPU),
        "2 processes share 1 device: two of them on one device fail with NCCL -> "
        "start 1 process, or --nproc-per-node auto",
        "a shared device",
    ),
    (
        "devices",
        facts("2", {"CUDA_VISIBLE_DEVICES": "0,1,0"}),
        "CUDA_VISIBLE_DEVICES: '0,1,0' names '0' twice: CUDA then sees no device -> name each device once",
        "a device twice",
    ),
    (
        "devices",
        facts("2", {"CUDA_VISIBLE_DEVICES": "0,gpu1"}),
        "CUDA_VISIBLE_DEVICES: '0,gpu1': 'gpu1' is not a device: CUDA ignores it and all entries after it -> "
        "write numbers or UUIDs (GPU-..., MIG-...) separated by commas",
        "an unknown device",
    ),
    (
        "shm",
        limits(shm=64 * MIB),
        "64 MiB in /dev/shm for 2 processes: DataLoader workers and NCCL die when it is full -> "
        "mount an emptyDir of medium Memory at /dev/shm, of 256 MiB or more",
        "too little",
    ),
    (
        "nofile",
        limits(nofile=1024),
        "1024 open files: DataLoader workers pass each tensor by one -> "
        "raise `ulimit -n` to 4096 or more, on a node in the container runtime's LimitNOFILE",
        "too few",
    ),
    (
        "memlock",
        facts(machine=replace(INFINIBAND, memlock=65536)),
        "there is InfiniBand, but only 64 KiB of memory may be pinned: NCCL cannot register its buffers -> "
        "add the capability IPC_LOCK to the container, or raise LimitMEMLOCK of the container runtime",
        "too little",
    ),
    (
        "cpu",
        limits("2", {"OMP_NUM_THREADS": "4"}, cpus=4),
        "2 processes x 4 threads share 4 CPUs (the container's limit): they are throttled -> "
        "set OMP_NUM_THREADS=2, or raise the limit in resources.limits.cpu",
        "too many threads",
    ),
    (
        "cpu",
        limits("4", cpus=1.5),
        "4 processes x 1 threads share 1.5 CPUs (the container's limit): they are throttled -> "
        "start fewer processes, or raise the limit in resources.limits.cpu",
        "too many processes",
    ),
    (
        "cpu",
        facts("2", {"OMP_NUM_THREADS": "all"}),
        "OMP_NUM_THREADS: 'all' is not a number -> set it to the number of threads per process, or remove it",
        "a word",
    ),
    (
        "memory",
        limits("4", memory=512 * MIB),
        "512 MiB (the container's limit) for 4 processes and the agent: torch alone needs more -> "
        "raise resources.limits.memory above 1280 MiB",
        "too little",
    ),
    (
        "files",
        facts(places=(LOG,)),
        "PYTORCHJOB_TERMINATION_LOG: /dev/log cannot be written -> mount an emptyDir there, or set another path",
        "a read-only place",
    ),
    (
        "endpoint",
        facts(endpoint=AWAY),
        "x-master-0.x:23456 does not answer: Name or service not known -> check that the job's Service exists, "
        "that the pod of that name runs, and that no NetworkPolicy blocks the port",
        "an unknown name",
    ),
    (
        "interfaces",
        facts(env={"NCCL_SOCKET_IFNAME": "ib"}),
        "NCCL_SOCKET_IFNAME: there is no interface 'ib' -> set it to one of lo, eth0, eth10, or remove the variable",
        "an unknown interface",
    ),
    (
        "env",
        facts(env={"RANK": "1"}),
        "RANK is set, but WORLD_SIZE is not -> set both RANK and WORLD_SIZE, or neither",
        "half of a pair",
    ),
    (
        "env",
        facts(env={"MASTER_PORT": "1", "PET_MASTER_PORT": "2"}),
        "MASTER_PORT=1, but PET_MASTER_PORT=2 -> remove both, so that the operator sets them, or set them alike",
        "twins that differ",
    ),
    (
        "env",
        facts(request=RunRequest("1", 2, False)),
        "PET_NNODES or --nnodes is 2, but there is no rendezvous endpoint -> "
        "set PET_RDZV_ENDPOINT, or PET_MASTER_ADDR and PET_NODE_RANK",
        "nodes without an endpoint",
    ),
    (
        "env",
        facts(env={"NCCL_IB_DISABLE": "0"}),
        "NCCL_IB_DISABLE=0, but there is no /dev/infiniband -> "
        "request the adapter in resources.limits (rdma/...), or set NCCL_IB_DISABLE=1",
        "no InfiniBand",
    ),
]


@pytest.mark.parametrize(
    ("name", "seen", "expected"), [pytest.param(*row[:3], id=f"{row[0]}: {row[3]}") for row in PROBLEMS]
)
def test_a_problem_and_its_fix(name: str, seen: Facts, expected: str) -> None:
    assert words(FIND[name](seen)) == expected


MANY = ",".join("0123456789" * 10)
ODD = ",".join(["x", *map(str, range(100))])
CUDA = "CUDA_VISIBLE_DEVICES"
LONG = [
    ("devices", facts(env={CUDA: MANY}), f"{CUDA}: {MANY[:80]!r} names '0' twice", "devices, one of them twice"),
    ("devices", facts(env={CUDA: ODD}), f"{CUDA}: {ODD[:80]!r}: 'x' is not a device", "devices, one of them odd"),
    ("cpu", facts(env={"OMP_NUM_THREADS": "x" * 99}), f"OMP_NUM_THREADS: '{'x' * 80}' is", "threads"),
    ("files", facts(places=(RequiredPath("TMPDIR", "p" * 300, False),)), f"TMPDIR: {'p' * 200} cannot", "a path"),
    ("endpoint", facts(endpoint=Endpoint("h" * 300, 1, problem="no")), f"{'h' * 253}:1 does not", "the name of a host"),
    (
        "interfaces",
        facts(env={"GLOO_SOCKET_IFNAME": "n" * 99}),
        f"GLOO_SOCKET_IFNAME: there is no interface '{'n' * 80}'",
        "an interface",
    ),
    (
        "env",
        facts(env={"MASTER_ADDR": "a" * 99, "PET_MASTER_ADDR": "b" * 99}),
        f"MASTER_ADDR={'a' * 80}, but PET_MASTER_ADDR={'b' * 80} -> ",
        "twins",
    ),
]


@pytest.mark.parametrize(
    ("name", "seen", "expected"), [pytest.param(*row[:3], id=f"{row[0]}: {row[3]}") for row in LONG]
)
def test_a_problem_quotes_the_beginning_of_a_long_text(name: str, seen: Facts, expected: str) -> None:
    assert words(FIND[name](seen)).startswith(expected)


@pytest.mark.parametrize(
    ("name", "seen", "expected"),
    [
        pytest.param(
            "devices",
            facts(env={"CUDA_VISIBLE_DEVICES": MANY}),
            f"CUDA_VISIBLE_DEVICES: {MANY[:80]!r}",
            id="80 characters of the devices",
        ),
        pytest.param(
            "files",
            facts(places=(RequiredPath("TMPDIR", "p" * 300, True),)),
            f"TMPDIR {'p' * 80}",
            id="80 characters of a path",
        ),
        pytest.param(
            "interfaces",
            facts(machine=replace(MACHINE, interfaces=tuple(f"eth{number}" for number in range(30)))),
            ", ".join(f"eth{number}" for number in range(20)),
            id="20 interfaces",
        ),
        pytest.param(
            "cpu",
            facts("1", {"OMP_NUM_THREADS": "9" * 12}),
            "1 x 999999999 threads, no limit",
            id="9 digits of threads",
        ),
    ],
)
def test_what_is_found_is_cut(name: str, seen: Facts, expected: str) -> None:
    assert FIND[name](seen).found == expected
