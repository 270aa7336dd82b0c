"""What has started the workers of this pod: it decides what they see, and how their output looks. Pure."""

from collections.abc import Mapping, MutableMapping
from enum import Enum, auto

from pytorchjob_agent.contract.environment import PET_NNODES, WORLD_SIZE

_OF_A_LAUNCHER = (
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_NAME",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
)
"""Variables by which libraries see that torchrun has started them."""


class StartedBy(Enum):
    """What has started the workers."""

    AGENT = auto()
    """`pytorchjob-agent run`: each line of their output has the rank before it."""
    LAUNCHER = auto()
    """torchrun, or another launcher that calls it: their output stays as they print it."""
    COMMAND = auto()
    """Nothing: the container's command is the worker. It sees what it would see without the agent."""

    @property
    def marks_lines(self) -> bool:
        """Whether a line of a worker's output begins with its rank."""
        return self is StartedBy.AGENT


def as_first_process(env: MutableMapping[str, str], pod: Mapping[str, str]) -> None:
    """Change a worker's variables into those of a container without a launcher; `pod` has the container's own.

    training-operator v1 counts a number in `nprocPerNode` in WORLD_SIZE, although the pod runs one program.
    """
    for name in _OF_A_LAUNCHER:
        env.pop(name, None)
    nodes, processes = pod.get(PET_NNODES, ""), pod.get(WORLD_SIZE, "")
    if nodes.isdigit() and processes.isdigit() and int(nodes):
        env[WORLD_SIZE] = str(int(env[WORLD_SIZE]) * max(int(processes) // int(nodes), 1))
