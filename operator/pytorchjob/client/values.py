"""What the client returns: values of a moment, and the object that they are from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytorchjob.view.listing import job_line
from pytorchjob.view.reading import ended
from pytorchjob_operator.errors import PyTorchJobError
from pytorchjob_operator.terminal import visible

SUCCEEDED = "Succeeded"


class JobFailedError(PyTorchJobError):
    """The job ended in another state than the expected one; `job` has its state, reason and message."""

    def __init__(self, job: "Job") -> None:
        """Name the job, its end and the reason."""
        self.job = job
        why = visible(job.message or job.reason or "no reason given")
        super().__init__(f"the job {job.name} has {job.end.lower()}: {why}")


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was when it was read. Numbers that are not known are None."""

    name: str
    namespace: str
    state: str
    """The type of its latest condition; `New` before an operator has seen it."""
    end: str
    """`Succeeded`, `Failed`, or empty while it has not ended."""
    reason: str
    message: str
    ready: str
    """Running pods of wanted pods: 3/4."""
    restarts: int
    percent: int | None
    """Progress of the training."""
    remaining_seconds: int | None
    object: Mapping[str, Any]
    """The whole object, as the API server has it."""

    @classmethod
    def from_object(cls, found: Mapping[str, Any]) -> "Job":
        """Read the object of a PyTorchJob."""
        line = job_line(found)
        return cls(
            name=line.name,
            namespace=line.namespace,
            state=line.state,
            end=ended(found),
            reason=line.reason,
            message=line.message,
            ready=line.ready,
            restarts=line.restarts,
            percent=line.percent,
            remaining_seconds=line.remaining,
            object=found,
        )

    @property
    def steps(self) -> tuple[int | None, int | None]:
        """Steps done, and all steps."""
        progress = (self.object.get("status") or {}).get("progress") or {}
        return progress.get("step"), progress.get("total")
