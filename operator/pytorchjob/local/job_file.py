"""The files of a run: the job's file, with the number of its workers, and the file that shows its status."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pytorchjob.local import addresses, result, source
from pytorchjob_operator.errors import CannotRun
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.plan import replicas


@dataclass(frozen=True, slots=True)
class JobFile:
    """Where a run reads its job, and where it keeps the job's status."""

    path: str
    job: str | None = None
    """The job's name, if the file contains several."""
    namespace: str | None = None
    status: str | None = None
    """The file for the job with its present status; None: it is not kept."""
    max_restarts: int | None = None
    """The restarts after failures; None: those of the file."""

    def load(self, workers: int | None = None) -> PyTorchJob:
        """Read the job, with this number of workers if it is given; raises InvalidJob."""
        found = source.choose(source.read_jobs(self.path), self.job, self.path)
        return source.override(found, self.namespace, workers, self.max_restarts)

    def workers(self) -> int | None:
        """Return the number of workers that the file requests now; raises InvalidJob."""
        job = self.load()
        addresses.check_size(job)
        return replicas.count(job, ReplicaType.WORKER) or None

    def keep(self, job: PyTorchJob) -> None:
        """Store the job with its status. A reader never finds half a file. Raises CannotRun."""
        if self.status is None:
            return
        path = Path(self.status)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_text(json.dumps(result.final_object(job, job)) + "\n")
            new.replace(path)
        except OSError as error:
            why = error.strerror or error
            raise CannotRun(f"the status cannot be kept in {self.status}: {why}") from error
