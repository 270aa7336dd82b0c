"""A port for the programs of a round that no launcher starts: rank 0's program opens its store there.

torchrun's workers share the agents' store. Such a program, or a launcher in it, expects MASTER_PORT to be free, as in a
pod of training-operator v1.
"""

import time
from collections.abc import Mapping, Sequence

from torch.distributed.elastic.utils.distributed import get_free_port

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.environment import MASTER_PORT
from pytorchjob_agent.rendezvous.extension import (
    Extension,
    NotStartedError,
    OpenRound,
    RoundEndedError,
    StartingWorkers,
)

_KEY = "program/port"
_PAUSE, _LONGEST_WAIT = 0.02, 30.0


class ProgramPort(Extension):
    """Rank 0's agent chooses the port, and tells the others."""

    def __init__(self) -> None:
        """Start without a round."""
        self._port = ""

    def open(self, round_: OpenRound) -> None:
        """Choose the port, as rank 0."""
        self._port = ""
        if round_.assigned.rank == 0:
            self._port = str(torch_compat.quiet_port(get_free_port))
            round_.store.write(_KEY, self._port)

    def wait(self, round_: OpenRound) -> None:
        """Wait for rank 0's choice."""
        deadline = time.monotonic() + _LONGEST_WAIT
        while not self._port:
            if (found := round_.store.read(_KEY, 0)) is not None:
                self._port = found.value
            elif not round_.goes_on():
                raise RoundEndedError(f"round {round_.assigned.round} has ended before rank 0 chose a port")
            elif time.monotonic() > deadline:
                raise NotStartedError("rank 0 has chosen no port for the programs")
            else:
                time.sleep(_PAUSE)

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Return the port."""
        return [{MASTER_PORT: self._port} for _ in range(starting.nproc)]
