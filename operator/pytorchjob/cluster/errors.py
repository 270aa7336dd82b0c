"""Every way in which a cluster can refuse: one sentence, the cause, and the next step."""

# ruff: noqa: N818 -- `except JobMissing` reads better than `except JobMissingError`

from typing import Any

from pytorchjob_operator.errors import PyTorchJobError
from pytorchjob_operator.terminal import visible


class ClusterError(PyTorchJobError):
    """A request failed. `str()` is the sentence with its cause; `remedy` is what to do next, or empty."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = visible(message), visible(remedy)  # parts of both are a server's
        super().__init__(self.message)


class NoCluster(ClusterError):
    """There is no kubeconfig, or it cannot be used."""


class ApiServerUnreachable(ClusterError):
    """The API server does not answer."""


class NoPermission(ClusterError):
    """This person may not do it; names the verb, the resource and the namespace."""


class Missing(ClusterError):
    """An object does not exist: a job, a pod, a namespace."""


class JobMissing(Missing):
    """There is no job of this name in the namespace."""


class NotInstalled(ClusterError):
    """The cluster does not know PyTorchJobs: the definition is not installed."""


class Rejected(ClusterError):
    """The API server refuses an invalid object. The message names each wrong field."""


class AlreadyExists(ClusterError):
    """An object of this kind and name exists; `existing` is it, if this person may read it."""

    def __init__(self, message: str, remedy: str = "", existing: dict[str, Any] | None = None) -> None:
        self.existing = existing
        super().__init__(message, remedy)
