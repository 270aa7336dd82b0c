"""What a back end can do: a cluster and this machine behind one interface. Jobs are plain dicts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from pytorchjob_operator.errors import PyTorchJobError

Object = dict[str, Any]


class UnsupportedError(PyTorchJobError):
    """This back end lacks a verb. The message names the verb and an alternative."""


class Backend(Protocol):
    """Where jobs run. Methods raise kinds of `PyTorchJobError`: `JobMissing` if there is no such job."""

    def create(self, job: Object) -> Object:
        """Start a job whose file is valid."""

    def get(self, name: str) -> Object:
        """Read a job with its status."""

    def list(self) -> Sequence[Object]:
        """Read all jobs."""

    def patch(self, name: str, change: Mapping[str, Any]) -> Object:
        """Change a job by a JSON merge patch; raises UnsupportedError if this cannot be changed here."""

    def delete(self, name: str) -> None:
        """Stop a job and forget it."""

    def logs(self, name: str, *, follow: bool, ranks: str) -> Iterator[str]:
        """Yield the lines of all ranks, or of those that `ranks` names (0,3-5)."""

    def events(self, name: str) -> Sequence[Object]:
        """Read the events of a job and its pods, oldest first."""
