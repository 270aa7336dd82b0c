"""The training of the styles: what a step does to a state, and the losses of a run that nothing disturbs."""

from typing import Any

import torch

SIZE = 256
State = dict[str, Any]


def fresh(rank: int) -> State:
    """The state before the first step."""
    zero = torch.zeros(SIZE, dtype=torch.float64)
    return {"model": {"step": 0, "w": zero.clone()}, "optimizer": {"step": 0, "v": zero.clone()}, "rank": rank}


def target(step: int, rank: int) -> torch.Tensor:
    """What a rank has to learn in a step."""
    return torch.sin(torch.arange(SIZE, dtype=torch.float64) * 0.1 + step * 0.7 + rank)


def gradient(w: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Of the loss."""
    return w - data


def loss_of(w: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Half of the mean square."""
    return ((w - data) ** 2).mean().reshape(1) / 2


def update(state: State, step: int, mean: torch.Tensor) -> None:
    """One step of gradient descent with momentum: half a state shows in all later losses."""
    optimizer, model = state["optimizer"], state["model"]
    optimizer["v"] = optimizer["v"] * 0.98 + mean
    model["w"] = model["w"] - optimizer["v"] * 0.003
    model["step"] = optimizer["step"] = step


def losses(steps: int, world: int) -> list[float]:
    """The losses of the steps 1, 2, ... of a run that nothing disturbs."""
    state, found = fresh(0), []
    for step in range(1, steps + 1):
        w = state["model"]["w"]
        data = [target(step, rank) for rank in range(world)]
        found.append(sum(float(loss_of(w, each)) for each in data) / world)
        update(state, step, sum((gradient(w, each) for each in data), torch.zeros(SIZE, dtype=torch.float64)) / world)
    return found
