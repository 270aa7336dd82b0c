"""The in-image elastic agent: reads the contract env, rendezvous, supervises the workers of one pod.

Runs with the standard library and the image's torch alone. `run_standalone` is for other programs; `progress`,
`checkpoint_requested`, `should_stop` and `seconds_left` are for training scripts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "StandaloneError",
    "StandaloneResult",
    "checkpoint_requested",
    "progress",
    "run_standalone",
    "seconds_left",
    "should_stop",
]

if TYPE_CHECKING:
    from pytorchjob_agent.script.api import checkpoint_requested, progress, seconds_left, should_stop
    from pytorchjob_agent.standalone.api import StandaloneError, StandaloneResult, run_standalone

_SCRIPT_API = ("checkpoint_requested", "progress", "seconds_left", "should_stop")


def __getattr__(name: str) -> Any:
    """Load what is asked for, and not before: the operator imports this package too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "script.api" if name in _SCRIPT_API else "standalone.api"
    return getattr(import_module(f"{__name__}.{module}"), name)
