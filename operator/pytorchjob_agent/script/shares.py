"""`shares`: which shares of a step's batch this rank does. While a rank is lost, the others do its share too.

    for step in range(first, total):
        optimizer.zero_grad()
        for share in shares(model):
            loss_of(model(batch(step, share))).backward()
        optimizer.step()

There are as many shares as ranks when the round began, numbered like those, and the gradients are the average over all
of them. So the global batch is constant, whoever is lost and when.
"""

import sys
from collections.abc import Iterator
from typing import Any

_MODULES = ("pytorchjob_shrink_torch", "pytorchjob_agent.workers.startup.pytorchjob_shrink_torch")
"""Under which names a worker may have loaded what lets its round go on without a lost rank."""


def shares(model: Any) -> Iterator[int]:
    """Yield the shares of this step's batch that this rank does: its own one, and for a lost rank perhaps another.

    Each needs a forward and a backward pass of `model`, a DistributedDataParallel. More may follow after the last
    one, if a rank is lost in this step. Where rounds do not go on without a lost rank, it yields this rank alone.
    Raises TypeError for another model, and RuntimeError within its `no_sync()`.
    """
    for name in _MODULES:
        found = sys.modules[name].shares(model) if name in sys.modules else None
        if found is not None:
            own: Iterator[int] = found
            return own
    dist: Any = sys.modules.get("torch.distributed")
    return iter([dist.get_rank() if dist and dist.is_available() and dist.is_initialized() else 0])
