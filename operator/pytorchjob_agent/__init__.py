"""The in-image elastic agent: reads the contract env, rendezvous, supervises the workers of one pod.

Runs with the standard library and the image's torch alone. `run_standalone` is the one function for other programs.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["StandaloneError", "StandaloneResult", "run_standalone"]

if TYPE_CHECKING:
    from .standalone import StandaloneError, StandaloneResult, run_standalone


def __getattr__(name: str) -> Any:
    """Load what is asked for, and not before: the operator imports this package too."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import standalone

    return getattr(standalone, name)
