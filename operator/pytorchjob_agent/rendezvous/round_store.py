"""The stores of rounds: one for each round. Its port is bound before it is announced, and closed with the round."""

import socket
from datetime import timedelta
from typing import Any

import torch.distributed

from pytorchjob_agent import torch_compat

_dist: Any = torch.distributed  # torch_compat may replace its TCPStore: the attribute is read at each use
CONNECT_SECONDS = 10.0
_CALL = timedelta(seconds=CONNECT_SECONDS)


def listen(address: str) -> socket.socket:
    """Return a socket that listens on a free port of this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family, backlog=4096)


def serve(listener: socket.socket) -> Any:
    """Open the store behind a bound socket; it lives as long as the object."""
    return torch_compat.store_on(listener, timeout=_CALL)


def connect(host: str, port: int) -> Any:
    """Connect to a store; raises torch's DistError without an answer in time."""
    return _dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_CALL)


def beside(store: Any, prefix: str) -> Any:
    """Return the part of a store that workers do not use."""
    return _dist.PrefixStore(prefix, store)
