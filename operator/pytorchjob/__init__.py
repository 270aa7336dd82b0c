"""What a person uses: the command `pytorchjob` (`kubectl pytorch`), and the Python client.

A job's way through it: `cluster` reads and writes objects, `view` turns them into values, `screen` prints values. The
pure parts import no client and no clock. Nothing here runs in the operator or in a training pod.

    from pytorchjob import PyTorchJobClient, TrainFunction
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytorchjob_operator import __version__

if TYPE_CHECKING:
    from pytorchjob.client.api import PyTorchJobClient
    from pytorchjob.client.backend import UnsupportedError
    from pytorchjob.client.function import TrainFunction
    from pytorchjob.client.values import Job, JobFailedError
    from pytorchjob.cluster.errors import ClusterError, JobMissing
    from pytorchjob_operator.errors import CannotRun, InvalidJob, PyTorchJobError

_OFFERED = {
    "CannotRun": "pytorchjob_operator.errors",
    "ClusterError": "pytorchjob.cluster.errors",
    "InvalidJob": "pytorchjob_operator.errors",
    "JobMissing": "pytorchjob.cluster.errors",
    "PyTorchJobError": "pytorchjob_operator.errors",
    "UnsupportedError": "pytorchjob.client.backend",
    "Job": "pytorchjob.client.values",
    "JobFailedError": "pytorchjob.client.values",
    "PyTorchJobClient": "pytorchjob.client.api",
    "TrainFunction": "pytorchjob.client.function",
}
__all__ = [
    "CannotRun",
    "ClusterError",
    "InvalidJob",
    "Job",
    "JobFailedError",
    "JobMissing",
    "PyTorchJobClient",
    "PyTorchJobError",
    "TrainFunction",
    "UnsupportedError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import what the client offers when it is asked for: the command line starts without it."""
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OFFERED[name]), name)
