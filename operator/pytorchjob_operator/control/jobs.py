"""The jobs as the operator knows them: the newest version seen, from the watch or from a reply to a write.

A resourceVersion only grows, so that a late event never takes back what a reply has already told. It decides nothing.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob


class JobCache:
    """Jobs by uid; a stored object that this version cannot read is kept out and reported."""

    def __init__(self) -> None:
        self._jobs: dict[str, PyTorchJob] = {}

    def put(self, obj: dict[str, Any]) -> str:
        """Keep an API object unless a newer one is known, and return its uid; raises InvalidJob naming the fields."""
        try:
            job = PyTorchJob.model_validate(obj)
        except ValidationError as error:
            problems = [Problem(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()]
            raise InvalidJob(problems) from error
        uid, known = job.metadata.uid, self._jobs.get(job.metadata.uid)
        if known is None or _version(known) < _version(job):
            self._jobs[uid] = job
        return uid

    def get(self, uid: str) -> PyTorchJob | None:
        """The job, or None once it is gone."""
        return self._jobs.get(uid)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._jobs.pop(uid, None)

    def sweep(self, living: set[str], known_before: frozenset[str]) -> list[str]:
        """Forget the jobs that a list taken after `known_before` no longer has; returns their uids."""
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
