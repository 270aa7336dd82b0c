"""Made-up facts about a member, without problems but for a test's changes, and the text of a check about them."""

from collections.abc import Mapping
from dataclasses import replace

from pytorchjob_agent.preflight.checks import CHECKS, MIB, CheckResult
from pytorchjob_agent.preflight.facts import ContainerLimits, Endpoint, Facts, RequiredPath, RunRequest, Torch

FIND = {check.name: check.find for check in CHECKS}
MACHINE = ContainerLimits(shm=4096 * MIB, nofile=2**20, memlock=None, cores=8, interfaces=("lo", "eth0", "eth10"))
TORCH = Torch("2.15.0", cuda="13.2", nccl="2.30.7", kind="cuda", visible=2)
GOOD = Facts(
    request=RunRequest("2"),
    torch=TORCH,
    machine=MACHINE,
    places=(RequiredPath("TMPDIR", "/tmp", True),),
    endpoint=Endpoint("x-master-0.x", 23456),
    python="3.11.7",
)
NO_TORCH = Torch(problem="No module named 'torch'")
NO_GPU = replace(TORCH, visible=0)
ONE_GPU = replace(TORCH, visible=1)
CPU_BUILD = Torch("2.15.0+cpu")
INFINIBAND = replace(MACHINE, infiniband=True)
AWAY = Endpoint("x-master-0.x", 23456, problem="Name or service not known")


def facts(nproc: str = "2", env: Mapping[str, str] | None = None, **changes: object) -> Facts:
    """Facts without problems but for these changes; `nproc` is the value for torchrun."""
    return replace(GOOD, **({"request": RunRequest(nproc), "env": env or {}} | changes))  # type: ignore[arg-type]


def limits(nproc: str = "2", env: Mapping[str, str] | None = None, **changes: object) -> Facts:
    """Facts without problems but for these limits of the container."""
    return facts(nproc, env, machine=replace(MACHINE, **changes))  # type: ignore[arg-type]


def words(outcome: CheckResult) -> str:
    """All problems and remedies."""
    return "; ".join(f"{problem.what} -> {problem.remedy}" for problem in outcome.problems)
