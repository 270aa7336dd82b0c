"""How many processes a local run starts if the job gives no number: in total no more than this machine has CPUs. Pure.

In a cluster torchrun counts the CPUs of each pod's machine. Here all replicas share one machine, and each of them
would start as many processes as it has CPUs.
"""

from collections.abc import Iterator
from typing import Any

from pytorchjob.local import gpus
from pytorchjob_agent.contract.environment import PET_NPROC_PER_NODE
from pytorchjob_operator.model import PyTorchJob, main_container
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.environment import nproc

_LAUNCHERS = ("torchrun", "pytorchjob-agent", "pytorchjob_agent", "torch.distributed")
_OWN = ("--nproc-per-node", "--nproc_per_node")


def settle(job: PyTorchJob, cpus: int, devices: int) -> tuple[PyTorchJob, list[str]]:
    """Return the job with a number of processes, and a note about it; the same job if it needs neither."""
    total = replicas.total(job)
    given = _number_of_gpus(job, devices)
    if not (_counts_cpus(job, devices) or given * total > cpus):
        return job, []
    each = max(1, min(cpus // max(total, 1), *_limits(job), cpus, given or cpus))
    here = f"{_count(each, 'process', 'es')} in each of {_count(total, 'replica', 's')}, {each * total} in all"
    where = f"{here} on {_count(cpus, 'CPU', 's')}"
    if given:
        note = (
            f"nprocPerNode {given} is for GPUs, which this machine lacks: {where}; ask for no GPUs to keep the number"
        )
    else:
        note = f"nprocPerNode is unset: {where}; set spec.nprocPerNode to change it"
    return job.model_copy(update={"spec": job.spec.model_copy(update={"nproc_per_node": str(each)})}), [note]


def _counts_cpus(job: PyTorchJob, devices: int) -> bool:
    """Whether a launcher of the job would count CPUs, and nothing in the job gives it a number."""
    elastic = job.spec.elastic_policy
    if job.spec.nproc_per_node is not None or (elastic is not None and elastic.n_proc_per_node is not None):
        return False
    if 0 < gpus.total(job) <= devices:
        return False  # each replica has its GPUs, and torchrun counts them
    mains = list(_mains(job))
    return any(map(_launches, mains)) and not any(map(_has_own_number, mains))


def _number_of_gpus(job: PyTorchJob, devices: int) -> int:
    """Return the job's own number of processes, if it is one for each GPU and this machine lacks the GPUs; else 0."""
    number = job.spec.nproc_per_node or ""
    return int(number) if gpus.total(job) > devices and number.isdigit() else 0


def _mains(job: PyTorchJob) -> Iterator[dict[str, Any]]:
    for _, spec in job.spec.pytorch_replica_specs.items():
        yield main_container(spec.template) or {}


def _words(main: dict[str, Any]) -> list[str]:
    return [str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ()))]


def _launches(main: dict[str, Any]) -> bool:
    return any(launcher in word for word in _words(main) for launcher in _LAUNCHERS)


def _has_own_number(main: dict[str, Any]) -> bool:
    named = any(variable.get("name") == PET_NPROC_PER_NODE for variable in main.get("env") or ())
    return named or any(word.startswith(_OWN) for word in _words(main))


def _limits(job: PyTorchJob) -> Iterator[int]:
    """Yield the CPU limits of the roles, as in a cluster."""
    for _, spec in job.spec.pytorch_replica_specs.items():
        number = nproc.per_node("cpu", spec.template)
        if number is not None and number.isdecimal():
            yield int(number)


def _count(number: int, noun: str, plural: str) -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"
