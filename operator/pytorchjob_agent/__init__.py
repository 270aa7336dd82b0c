"""The agent inside a pod: reads the operator's environment, takes part in rendezvous, supervises the pod's workers.

It needs the standard library and the image's torch only. `run_standalone` is for other programs; `progress`,
`checkpoint_requested`, `should_stop` and `seconds_left` are for training scripts. The packages, from the top:
`command` (the command line and the first process), `rendezvous` (rounds with the coordinator), `hangs`, `preflight`,
`script` (calls of training scripts), `workers` (their start and output), `system`, `contract` (shared with the
operator); `standalone` is for runs without a job.
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
    """Import each public name on first use: the operator imports this package too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "script.api" if name in _SCRIPT_API else "standalone.api"
    return getattr(import_module(f"{__name__}.{module}"), name)
