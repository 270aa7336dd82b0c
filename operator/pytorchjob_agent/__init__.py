"""The agent inside a pod: reads the operator's environment, takes part in rendezvous, supervises the pod's workers.

It needs the standard library and the image's torch only. `run_standalone` is for other programs. `progress`,
`checkpoint_requested`, `should_stop`, `seconds_left`, `shares`, `steps`, `save`, `load` and `take_over` are for
scripts, and `LightningProgress` is for those of Lightning. The packages, from the top: `command` (the command line
and the first process), `extensions` (which of `saves` and `caches` there are), `rendezvous` (rounds with the
coordinator), `hangs`, `preflight`, `script` (calls of training scripts), `exchange` (files between members),
`checkpoint` (guarded saves), `workers` (their start and output), `system`, `contract` (shared with the operator);
`standalone` is for runs without a job.
"""

__version__ = "0.1.0"
__all__ = [
    "FencedError",
    "StandaloneError",
    "StandaloneResult",
    "checkpoint_requested",
    "load",
    "progress",
    "run_standalone",
    "save",
    "seconds_left",
    "shares",
    "should_stop",
    "steps",
    "take_over",
]

TYPE_CHECKING = False  # not typing's: every process of a container with an injected agent imports this file
if TYPE_CHECKING:
    from typing import Any

    from pytorchjob_agent.checkpoint.fence import FencedError
    from pytorchjob_agent.checkpoint.files import load, save, take_over
    from pytorchjob_agent.script.api import checkpoint_requested, progress, seconds_left, should_stop
    from pytorchjob_agent.script.lightning import LightningProgress as LightningProgress
    from pytorchjob_agent.script.surviving import shares, steps
    from pytorchjob_agent.standalone.api import StandaloneError, StandaloneResult, run_standalone

_MODULES = {
    "FencedError": "checkpoint.fence",
    "LightningProgress": "script.lightning",  # not in __all__: `import *` must work without Lightning
    **dict.fromkeys(("load", "save", "take_over"), "checkpoint.files"),
    **dict.fromkeys(("checkpoint_requested", "progress", "seconds_left", "should_stop"), "script.api"),
    **dict.fromkeys(("shares", "steps"), "script.surviving"),
    **dict.fromkeys(("StandaloneError", "StandaloneResult", "run_standalone"), "standalone.api"),
}


def __getattr__(name: str) -> "Any":
    """Import each public name on first use: the operator imports this package too."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
