"""Removes the variables that would make a standalone run a part of the job in which it is started.

Pure: variables in, variables out. Variables that torch sets for every worker (RANK, LOCAL_RANK, ...) need no rule here.
"""

from collections.abc import Mapping

from pytorchjob_agent.contract.environment import (
    MASTER_ADDR,
    MASTER_PORT,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_RDZV_BACKEND,
    PET_RDZV_CONF,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
    RANK,
    WORLD_SIZE,
)
from pytorchjob_agent.script.progress_file import PROGRESS

_PLACE = {MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK, PET_NODE_RANK, PET_NNODES, PET_MASTER_ADDR, PET_MASTER_PORT}
_RENDEZVOUS = {PET_RDZV_BACKEND, PET_RDZV_CONF, PET_RDZV_ENDPOINT, PET_RDZV_ID}
_OF_A_WORKER = "TORCHELASTIC_RUN_ID"
_OF_AN_AGENT = ("PET_", "TORCHELASTIC_")


def runs_below_worker(env: Mapping[str, str]) -> bool:
    """Return whether this process is a descendant of a worker: torchrun's variables are then for the agent above it."""
    return _OF_A_WORKER in env


def without_job_variables(env: Mapping[str, str], *, below_worker: bool) -> dict[str, str]:
    """Return the variables that a standalone run keeps.

    In a pod (not below a worker) PET_NPROC_PER_NODE, PET_MAX_RESTARTS and the like are this run's own.
    """
    # The progress file belongs to the job too: the job must not take this run's reports for its own.
    kept = {name: value for name, value in env.items() if name not in _PLACE | _RENDEZVOUS | {PROGRESS}}
    if not below_worker:
        return kept
    return {name: value for name, value in kept.items() if not name.startswith(_OF_AN_AGENT)}
