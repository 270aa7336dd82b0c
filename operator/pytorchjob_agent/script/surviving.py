"""What a script calls to lose nothing with a lost rank: `shares`, the parts of a batch, and `steps`, those of its loop.

    for step in steps(range(first, total), model, optimizer):
        optimizer.zero_grad()
        for share in shares(model):
            loss_of(model(batch(step, share))).backward()
        optimizer.step()

There are as many shares as ranks when the round began, numbered like those, and the gradients are the average over all
of them. While a rank is lost, the others do its share too: the global batch is constant, whoever is lost and when. A
rank that comes back gets the state from rank 0, and begins with the step that the others are at; they keep running.
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
    found: Iterator[int] | None = _asked("shares", model)
    if found is not None:
        return found
    dist: Any = sys.modules.get("torch.distributed")
    return iter([dist.get_rank() if dist and dist.is_available() and dist.is_initialized() else 0])


def steps(numbers: range, *state: Any) -> Iterator[int]:
    """Yield these numbers, all or, in a rank that comes back, those that are left.

    `state`: everything that a step changes and that is equal at all ranks: objects with `state_dict` and
    `load_state_dict`, such as the model, the optimizer and the scheduler. Raises TypeError for others.
    """
    for each in state:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(f"steps: {type(each).__name__} has no state_dict and load_state_dict")
    found: Iterator[int] | None = _asked("steps", numbers, state)
    return iter(numbers) if found is None else found


def may_go_on() -> bool:
    """Return whether nothing that this rank has done keeps the ranks of its round from going on without a lost one."""
    return bool(_asked("may_go_on"))


def _asked(name: str, *given: Any) -> Any:
    """Return what the code beside the agent answers; None: this process does not have it, or it knows nothing."""
    for module in _MODULES:
        found = getattr(sys.modules[module], name)(*given) if module in sys.modules else None
        if found is not None:
            return found
    return None
