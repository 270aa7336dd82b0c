"""The limit of each check: the last facts without a problem, and the first facts with one."""

from dataclasses import replace

import pytest

from pytorchjob_agent.preflight.checks import MIB
from pytorchjob_agent.preflight.facts import Facts, RunRequest
from tests.agent.preflight.made_up import CPU_BUILD, FIND, INFINIBAND, MACHINE, NO_GPU, ONE_GPU, facts, limits, words

RIGHT = [
    ("contract", facts("1"), "one process"),
    ("gpus", facts("gpu", torch=ONE_GPU), "one GPU for its process"),
    ("gpus", facts("npu", {"CUDA_VISIBLE_DEVICES": "0"}, torch=ONE_GPU), "a plugin's word counts as one process"),
    ("devices", facts("1", torch=ONE_GPU), "one device for its process"),
    ("devices", facts("npu", torch=ONE_GPU), "a plugin's word counts as one process"),
    ("devices", facts("4", torch=NO_GPU), "no device is shared"),
    ("devices", facts(env={"CUDA_VISIBLE_DEVICES": ""}), "no device is named"),
    ("devices", facts(env={"CUDA_VISIBLE_DEVICES": "-1"}), "-1 is not a device"),
    ("devices", facts(env={"CUDA_VISIBLE_DEVICES": "NoDevFiles"}), "NoDevFiles is not a device"),
    ("devices", facts(env={"CUDA_VISIBLE_DEVICES": " 0 , 1 "}), "blanks around the numbers"),
    ("shm", limits("1", shm=128 * MIB), "128 MiB for one process"),
    ("shm", limits("npu", shm=128 * MIB), "a plugin's word counts as one process"),
    ("shm", facts(torch=NO_GPU, machine=replace(MACHINE, shm=64 * MIB)), "a pod without devices"),
    ("shm", facts(torch=CPU_BUILD, machine=replace(MACHINE, shm=64 * MIB)), "a build for CPUs"),
    ("nofile", limits(nofile=4096), "4096 files"),
    ("nofile", limits(nofile=None), "files without a limit"),
    ("memlock", limits(infiniband=True, memlock=1024 * MIB), "1 GiB"),
    ("memlock", facts(machine=INFINIBAND), "pinned memory without a limit"),
    ("cpu", limits("2", cpus=1.5), "two threads on one and a half CPUs"),
    ("cpu", limits("2", {"OMP_NUM_THREADS": "4"}, cpus=8), "eight threads on eight CPUs"),
    ("cpu", facts("2", {"OMP_NUM_THREADS": ""}), "an empty variable is unset"),
    ("memory", limits("1", memory=512 * MIB), "512 MiB for one process and the agent"),
    ("memory", limits("npu", memory=512 * MIB), "a plugin's word counts as one process"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "=eth0"}), "an exact name that exists"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "=lo,eth10"}), "several exact names"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "^docker"}), "a name that is left out need not exist"),
    ("interfaces", facts(env={"GLOO_SOCKET_IFNAME": "eth0,"}), "a comma at the end"),
    ("env", facts(request=RunRequest("1", 2, True)), "two nodes with an endpoint"),
    ("env", facts(request=RunRequest("1", 1, False)), "one node needs no endpoint"),
    ("env", facts(env={"NCCL_IB_DISABLE": "1"}), "InfiniBand that is switched off"),
]


@pytest.mark.parametrize(("name", "seen"), [pytest.param(*row[:2], id=f"{row[0]}: {row[2]}") for row in RIGHT])
def test_the_last_facts_that_are_right(name: str, seen: Facts) -> None:
    assert words(FIND[name](seen)) == ""


WRONG = [
    ("contract", facts("00"), "00 processes", "zeros"),
    ("devices", facts("2", torch=ONE_GPU), "share 1 device:", "one device for two processes"),
    ("shm", limits("1", shm=128 * MIB - 1), "of 128 MiB or more", "less than 128 MiB"),
    ("shm", limits("npu", shm=0), "for 1 process:", "a plugin's word counts as one process"),
    ("nofile", limits(nofile=4095), "4095 open files", "4095 files"),
    ("memlock", limits(infiniband=True, memlock=1024 * MIB - 1), "1048575 KiB", "less than 1 GiB"),
    ("cpu", limits("1", {"OMP_NUM_THREADS": "2"}, cpus=0.5), "set OMP_NUM_THREADS=1,", "two threads on half a CPU"),
    ("cpu", limits("2", {"OMP_NUM_THREADS": "2"}, cpus=3), "set OMP_NUM_THREADS=1,", "four threads on three CPUs"),
    ("cpu", facts("1", {"OMP_NUM_THREADS": "-1"}), "'-1' is not a number", "a negative number"),
    ("memory", limits("1", memory=512 * MIB - 1), "above 512 MiB", "less than 512 MiB"),
    ("interfaces", facts(env={"NCCL_SOCKET_IFNAME": "==eth0"}), "'==eth0'", "a second sign belongs to the name"),
    ("env", facts(request=RunRequest("1", 3, False)), "--nnodes is 3", "three nodes without an endpoint"),
]


@pytest.mark.parametrize(
    ("name", "seen", "expected"), [pytest.param(*row[:3], id=f"{row[0]}: {row[3]}") for row in WRONG]
)
def test_the_first_facts_that_are_wrong(name: str, seen: Facts, expected: str) -> None:
    assert expected in words(FIND[name](seen))
