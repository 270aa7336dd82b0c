"""The state that a script saves: modules and optimizers in it become values by name, whatever wraps the module."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer


def check(state: object) -> None:
    """Raise TypeError or ValueError for a state that cannot be saved."""
    if not isinstance(state, dict):
        raise TypeError(f'state: expected a dict such as {{"model": model}}, not {type(state).__name__}')
    if not state:
        raise ValueError("state: the dict is empty, there is nothing to save or load")
    wrong = next((key for key in state if not isinstance(key, str)), None)
    if wrong is not None:
        raise TypeError(f"state: the key {wrong!r} is not a str")
    _module(state)


def values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what torch.distributed.checkpoint saves, or loads into."""
    return {key: _value(each, _module(state)) for key, each in state.items()}


def put(state: dict[str, Any], loaded: Mapping[str, Any]) -> None:
    """Put what was loaded into the state's objects. Those with `load_state_dict` have it already, by torch."""
    for key, each in state.items():
        if isinstance(each, nn.Module):
            set_model_state_dict(each, loaded[key])
        elif isinstance(each, Optimizer):
            set_optimizer_state_dict(_module(state), each, loaded[key])
        elif not isinstance(each, Stateful):
            state[key] = loaded[key]


def _value(each: Any, module: Any) -> Any:
    if isinstance(each, nn.Module):
        return get_model_state_dict(each)
    return get_optimizer_state_dict(module, each) if isinstance(each, Optimizer) else each


def _module(state: Mapping[str, Any]) -> Any:
    """Return the module to which the optimizers belong; None without optimizers."""
    modules = [each for each in state.values() if isinstance(each, nn.Module)]
    if not any(isinstance(each, Optimizer) for each in state.values()):
        return None
    if len(modules) != 1:
        raise ValueError(
            f"state: an optimizer needs the module of its parameters beside it, and there are {len(modules)} modules;"
            " pass values of torch.distributed.checkpoint.state_dict.get_optimizer_state_dict instead"
        )
    return modules[0]
