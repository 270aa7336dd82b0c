"""What torch finds under `pytorchjob` in its entry point group `torchrun.handlers`: the way to our rendezvous.

Torch loads it while its own elastic package is half loaded, in every process that imports that package: it must neither
need torch nor cost time. The rendezvous itself is in `handler`.
"""

from collections.abc import Callable
from typing import Any


def factory() -> Callable[[Any], Any]:
    """Return the function that makes a rendezvous handler from torch's RendezvousParameters."""
    return _create


def _create(parameters: Any) -> Any:
    from pytorchjob_agent.rendezvous import handler

    return handler.create(parameters)
