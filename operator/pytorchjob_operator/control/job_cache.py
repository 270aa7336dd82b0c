"""The cache of jobs: the newest version of each, from the watch or from the response to a write.

A resourceVersion only grows, so that a late event never replaces the newer state from a response.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import ValidationError

from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob

OnChange = Callable[[PyTorchJob | None, PyTorchJob | None], None]
"""Called with a job's previous and new version; None stands for a job that was not known, or that is gone."""
_MAX_GONE = 10_000


class JobCache:
    """Jobs by uid; an object that this operator version cannot parse is rejected with InvalidJob.

    `on_change` is called for each newer version, and once for each deletion, even if a late event brings a job back.
    """

    def __init__(self, on_change: OnChange = lambda old, new: None) -> None:
        self._jobs: dict[str, PyTorchJob] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._on_change = on_change

    def put(self, obj: dict[str, Any]) -> str:
        """Store an API object unless a newer one is known, and return its uid; raises InvalidJob with the fields."""
        try:
            job = PyTorchJob.model_validate(obj)
        except ValidationError as error:
            problems = [Problem(".".join(map(str, detail["loc"])), detail["msg"]) for detail in error.errors()]
            raise InvalidJob(problems) from error
        uid, known = job.metadata.uid, self._jobs.get(job.metadata.uid)
        if known is None or _version(known) < _version(job):
            self._jobs[uid] = job
            self._on_change(known, job)
        return uid

    def get(self, uid: str) -> PyTorchJob | None:
        """The job; None once it is gone."""
        return self._jobs.get(uid)

    def forget(self, uid: str) -> None:
        """Remove a job that is gone."""
        job = self._jobs.pop(uid, None)
        if job is None or uid in self._gone:
            return
        self._gone[uid] = None
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)
        self._on_change(job, None)

    def sweep(self, living: set[str], known_before: frozenset[str]) -> list[str]:
        """Remove the jobs in `known_before` that a later list (`living`) lacks, and return their uids."""
        gone = [uid for uid in known_before if uid not in living and uid in self._jobs]
        for uid in gone:
            self.forget(uid)
        return gone

    def __iter__(self) -> Iterator[PyTorchJob]:
        return iter(tuple(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def uids(self) -> frozenset[str]:
        """The uids of all jobs."""
        return frozenset(self._jobs)


def _version(job: PyTorchJob) -> int:
    version = job.metadata.resource_version
    return int(version) if version.isdigit() else 0
