"""The rendezvous of a single node, without other members: each round has a store of its own, kept by the agent.

torch picks a free port, closes it and lets rank 0 open it again seconds later; another run may have it by then.
Here the port is bound once, stays bound through all rounds, and the workers are clients of the store behind it.
"""

import socket
from typing import Any

import torch.distributed
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from pytorchjob_agent import torch_compat
from pytorchjob_agent.system.ports import listen

BACKEND = "pytorchjob-alone"
_dist: Any = torch.distributed  # has HashStore at run time, which type checkers do not see


class Alone(RendezvousHandler):
    """Puts one agent into a world of one, as often as it asks."""

    def __init__(self, listener: socket.socket, run_id: str) -> None:
        """Take over the bound socket."""
        self._listener = listener
        self._run_id = run_id
        self._server: Any = None

    def get_backend(self) -> str:
        """Return the name in torch's registry."""
        return BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Let the workers know that MASTER_PORT is open already: rank 0 connects like the others."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Open an empty store, so that no worker reads the addresses of the last round's workers."""
        self._server = None  # two stores on one socket would share the workers between them
        host, port = self._listener.getsockname()[:2]
        self._server = torch_compat.store_on(self._listener)
        # What the agent writes for itself (ranks, the exit barrier) concerns no other process.
        return RendezvousInfo(_dist.HashStore(), 0, 1, RendezvousStoreInfo(host, port))

    def is_closed(self) -> bool:
        """Never: the run ends with its agent."""
        return False

    def set_closed(self) -> None:
        """Do nothing: there are no other members."""

    def num_nodes_waiting(self) -> int:
        """Return 0: no member joins."""
        return 0

    def get_run_id(self) -> str:
        """Return the run's id."""
        return self._run_id

    def shutdown(self) -> bool:
        """Give the port back."""
        self._server = None
        self._listener.close()
        return True


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Bind the endpoint's port, as torch's registry asks for it."""
    _, port = parse_rendezvous_endpoint(parameters.endpoint, default_port=0)
    return Alone(listen(port), parameters.run_id)
