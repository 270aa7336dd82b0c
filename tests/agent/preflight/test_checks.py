"""What each check finds wrong, by made-up facts, and which words it has for it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.preflight.checks import CHECKS, MIB
from pytorchjob_agent.preflight.facts import Facts, RequiredPath, RunRequest, Torch
from pytorchjob_agent.preflight.policy import variable
from tests.agent.preflight.made_up import AWAY, CPU_BUILD, FIND, GOOD, INFINIBAND, MACHINE, NO_GPU, TORCH, facts, words

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", list(FIND))
def test_nothing_is_wrong_with_good_facts(name: str) -> None:
    outcome = FIND[name](GOOD)
    assert (outcome.problems, type(outcome.found)) == ((), str)
    assert outcome.found


@pytest.mark.parametrize("name", list(FIND))
def test_facts_that_nobody_could_read_break_no_check(name: str) -> None:
    assert FIND[name](Facts(request=RunRequest("npu"))).found is not None


LIMIT = {"PYTORCHJOB_GPUS": "8"}
WRONG = [
    ("contract", facts(contract="PET_NNODES: 'x' is not N"), "PET_NNODES: 'x'", "a variable of the operator's"),
    ("contract", facts("0"), "0 processes per node: expected at least 1", "no process at all"),
    ("contract", facts("-3"), "-3 processes", "fewer than none"),
    (
        "torch",
        facts(torch=Torch(problem="No module named 'torch'")),
        "No module named 'torch' -> install torch",
        "no torch",
    ),
    ("gpus", facts("gpu", torch=NO_GPU), "--nproc-per-node is gpu, but torch 2.15.0 sees 0", "gpu without a GPU"),
    ("gpus", facts("gpu", torch=CPU_BUILD), "torch 2.15.0+cpu sees 0", "gpu with a build for CPUs"),
    (
        "gpus",
        facts("4", {"CUDA_VISIBLE_DEVICES": "0,1"}),
        "CUDA_VISIBLE_DEVICES assigns GPUs, but",
        "more than named",
    ),
    ("gpus", facts("3", {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}), "sees 2 for 3 processes", "more than handed out"),
    (
        "gpus",
        facts("1", {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}, torch=NO_GPU),
        "sees 0 for 1 process ->",
        "a broken driver",
    ),
    ("gpus", facts("8", LIMIT, torch=NO_GPU), "limits has 8 GPUs, but torch 2.15.0 sees 0", "a broken driver"),
    ("gpus", facts("auto", LIMIT, torch=CPU_BUILD), "torch 2.15.0+cpu sees 0", "GPUs, and an image for CPUs"),
    ("gpus", facts("gpu", torch=replace(NO_GPU, problem="odd")), "sees 0 (odd)", "torch says why"),
    ("gpus", facts("gpu", torch=NO_GPU), "PYTORCHJOB_PREFLIGHT_GPUS=warn", "the way out is named"),
    ("devices", facts("3"), "3 processes share 2 devices", "more processes than devices"),
    ("devices", facts("2", {"CUDA_VISIBLE_DEVICES": "0,1,0"}), "names '0' twice", "a device twice"),
    ("devices", facts("2", {"CUDA_VISIBLE_DEVICES": "0,gpu1"}), "'gpu1' is not a device", "a device that is none"),
    ("devices", facts("2", {"CUDA_VISIBLE_DEVICES": "0,"}), "'' is not a device", "a comma too many"),
    (
        "shm",
        facts(machine=replace(MACHINE, shm=64 * MIB)),
        "64 MiB in /dev/shm for 2 processes",
        "a container's default",
    ),
    ("shm", facts("64"), "of 8192 MiB or more", "grows with the processes"),
    ("shm", facts(machine=replace(MACHINE, shm=None)), "there is no shared memory", "none at all"),
    ("nofile", facts(machine=replace(MACHINE, nofile=1024)), "1024 open files", "a shell's default"),
    ("memlock", facts(machine=replace(INFINIBAND, memlock=64 * 1024)), "only 64 KiB of memory", "InfiniBand"),
    (
        "cpu",
        facts("1", machine=replace(MACHINE, cpus=2)),
        "1 process x 8 threads share 2 CPUs",
        "all cores of the node",
    ),
    ("cpu", facts("1", machine=replace(MACHINE, cpus=2)), "set OMP_NUM_THREADS=2", "the number that fits"),
    ("cpu", facts("4", machine=replace(MACHINE, cpus=1.5)), "start fewer processes", "more processes than CPUs"),
    (
        "cpu",
        facts("2", {"OMP_NUM_THREADS": "4"}, machine=replace(MACHINE, cpus=4)),
        "2 processes x 4",
        "too many threads",
    ),
    ("cpu", facts("auto", torch=CPU_BUILD, machine=replace(MACHINE, cpus=2)), "8 processes x 1", "auto counts cores"),
    (
        "cpu",
        facts("2", {"OMP_NUM_THREADS": "all"}),
        "OMP_NUM_THREADS: 'all' is not a number",
        "threads that are a word",
    ),
    (
        "memory",
        facts("4", machine=replace(MACHINE, memory=512 * MIB)),
        "raise resources.limits.memory above 1280",
        "memory",
    ),
    (
        "files",
        facts(places=(RequiredPath("TMPDIR", "/t", False),)),
        "TMPDIR: /t cannot be written",
        "a read-only folder",
    ),
    ("endpoint", facts(endpoint=AWAY), "x-master-0.x:23456 does not answer: Name or service", "a name that is unknown"),
    (
        "endpoint",
        facts(endpoint=replace(AWAY, ours=True, resolves=False)),
        "Name or service",
        "nobody finds the master",
    ),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "ib"}), "NCCL_SOCKET_IFNAME: there is no interface 'ib'", "NCCL's"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "=eth"}), "'=eth'", "an exact name is no prefix"),
    (
        "interfaces",
        facts(env={"GLOO_SOCKET_IFNAME": "eth0,eth1"}),
        "no interface 'eth1' -> set it to one of lo",
        "Gloo's",
    ),
    ("env", facts(env={"RANK": "1"}), "RANK is set, but WORLD_SIZE is not", "a rank without a size"),
    ("env", facts(env={"WORLD_SIZE": "2"}), "WORLD_SIZE is set, but RANK is not", "a size without a rank"),
    (
        "env",
        facts(env={"MASTER_ADDR": "a", "PET_MASTER_ADDR": "b"}),
        "MASTER_ADDR=a, but PET_MASTER_ADDR=b",
        "two masters",
    ),
    (
        "env",
        facts(request=RunRequest("1", 2, False)),
        "there is no rendezvous endpoint",
        "two nodes without an endpoint",
    ),
    ("env", facts(env={"NCCL_IB_DISABLE": "0"}), "there is no /dev/infiniband", "InfiniBand that is not there"),
]


@pytest.mark.parametrize(
    ("name", "seen", "expected"), [pytest.param(*row[:3], id=f"{row[0]}: {row[3]}") for row in WRONG]
)
def test_what_is_wrong(name: str, seen: Facts, expected: str) -> None:
    assert expected in words(FIND[name](seen))


RIGHT = [
    ("gpus", facts("4", torch=NO_GPU), "processes without GPUs, nobody asked for any"),
    ("gpus", facts("4", {"CUDA_VISIBLE_DEVICES": ""}, torch=NO_GPU), "CUDA switched off"),
    ("gpus", facts("4", {"CUDA_VISIBLE_DEVICES": "-1"}, torch=NO_GPU), "CUDA switched off by -1"),
    ("gpus", facts("4", {"NVIDIA_VISIBLE_DEVICES": "all"}, torch=NO_GPU), "`all` of an image is no request"),
    ("gpus", facts("4", {"NVIDIA_VISIBLE_DEVICES": "void"}, torch=NO_GPU), "nor is `void`"),
    ("gpus", facts("auto", {"CUDA_VISIBLE_DEVICES": "0,1"}), "auto takes what there is"),
    ("gpus", facts("2", LIMIT), "fewer than the limit: they may be shared"),
    ("gpus", facts("4", {**LIMIT, "CUDA_VISIBLE_DEVICES": ""}, torch=NO_GPU), "switched off in spite of the limit"),
    ("gpus", facts("cpu", LIMIT, torch=NO_GPU), "a process for each core was asked for"),
    ("gpus", facts("cpu", {"CUDA_VISIBLE_DEVICES": "0,1"}), "a process for each core, beside GPUs"),
    ("gpus", facts("3", {"NVIDIA_VISIBLE_DEVICES": "MIG-1,MIG-2,MIG-3"}), "slices, of which torch sees one"),
    ("gpus", facts("gpu", torch=Torch(problem="none")), "without torch that is the failure"),
    ("gpus", facts("4", torch=Torch("2.15.0", kind="xpu", visible=2)), "another vendor's devices are its own business"),
    ("devices", facts("2", {"CUDA_VISIBLE_DEVICES": "GPU-7f,MIG-9"}), "UUIDs"),
    ("memlock", facts(machine=replace(MACHINE, memlock=65536)), "little, but no InfiniBand"),
    ("memlock", facts(machine=INFINIBAND), "unlimited"),
    ("cpu", facts("2", {"OMP_NUM_THREADS": "4,2"}, machine=replace(MACHINE, cpus=8)), "nested threads"),
    ("cpu", facts("1", {"OMP_NUM_THREADS": "1"}, machine=replace(MACHINE, cpus=0.5)), "one thread on half a CPU"),
    ("endpoint", facts(endpoint=replace(AWAY, ours=True)), "the master itself opens its port"),
    ("endpoint", facts(endpoint=None), "a job of one pod"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "ib,eth"}), "one of two prefixes is enough"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "^docker,lo"}), "names that are left out need not exist"),
    ("env", facts(env={"NCCL_IB_DISABLE": "0"}, machine=INFINIBAND), "InfiniBand that is there"),
    ("env", facts(env={"RANK": "1", "WORLD_SIZE": "2", "PET_NODE_RANK": "1"}), "the operator's own variables"),
]


@pytest.mark.parametrize(("name", "seen"), [pytest.param(*row[:2], id=f"{row[0]}: {row[2]}") for row in RIGHT])
def test_what_is_right(name: str, seen: Facts) -> None:
    assert words(FIND[name](seen)) == ""


@pytest.mark.parametrize(
    ("asked", "torch", "nproc"),
    [
        pytest.param("3", TORCH, 3, id="a number"),
        pytest.param("gpu", TORCH, 2, id="gpu"),
        pytest.param("auto", TORCH, 2, id="auto with GPUs"),
        pytest.param("auto", CPU_BUILD, 8, id="auto without"),
        pytest.param("cpu", TORCH, 8, id="cpu"),
        pytest.param("xpu", Torch("2.15.0", kind="xpu", visible=4), 4, id="another kind"),
        pytest.param("npu", TORCH, None, id="a plugin's word"),
    ],
)
def test_how_many_processes_there_would_be(asked: str, torch: Torch, nproc: int | None) -> None:
    assert facts(asked, torch=torch).nproc == nproc


@pytest.mark.parametrize(
    ("nnodes", "most"),
    [pytest.param("2", 2, id="fixed"), pytest.param("1:3", 3, id="range"), pytest.param("x", 1, id="x")],
)
def test_the_most_nodes(nnodes: str, most: int) -> None:
    assert RunRequest.of("1", nnodes, True).nodes == most


def test_the_page_has_a_row_for_each_check_with_its_variable_and_default() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| (warn|fail) \| `(\w+)` \|$", page, re.MULTILINE)
    assert rows == [(check.name, "fail" if check.fatal else "warn", variable(check.name)) for check in CHECKS]
