"""The cache of jobs: the newest version of each, from the watch, from a list or from the response to a write.

A resourceVersion only grows, so that a late event never replaces the newer state from a response. A deleted job stays
deleted, whatever arrives later. Only a list may contradict both: it is read from etcd, and after a restore of etcd the
versions are lower than before.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.model import PyTorchJob

OnChange = Callable[[PyTorchJob | None, PyTorchJob | None], None]
"""Called with a job's previous and new version; None stands for a job that was not known, or that is gone."""
_MAX_GONE = 10_000


class JobCache:
    """Jobs by uid; an object that this operator version cannot parse is rejected with InvalidJob.

    `on_change` is called for each newer version, and once for each deletion.
    """

    def __init__(self, on_change: OnChange = lambda old, new: None) -> None:
        self._jobs: dict[str, PyTorchJob] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._newest = 0
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._on_change = on_change

    def put(self, obj: dict[str, Any]) -> str:
        """Store an API object unless a newer one is known, and return its uid; raises InvalidJob with the fields."""
        job = _parsed(obj)
        uid, known = job.metadata.uid, self._jobs.get(job.metadata.uid)
        if uid not in self._gone and (known is None or _version(known) < _version(job)):
            self._store(known, job)
        return uid

    def get(self, uid: str) -> PyTorchJob | None:
        """The job; None once it is gone."""
        return self._jobs.get(uid)

    def named(self, namespace: str, name: str) -> str | None:
        """The uid of the job of that name; None if there is none."""
        return self._by_name.get((namespace, name))

    def forget(self, uid: str) -> None:
        """Remove a job that is gone; the cache does not take it again."""
        job = self._jobs.pop(uid, None)
        if uid not in self._gone:
            self._gone[uid] = None
        if len(self._gone) > _MAX_GONE:
            self._gone.popitem(last=False)
        if job is None:
            return
        if self._by_name.get(_name(job)) == uid:
            del self._by_name[_name(job)]
        self._on_change(job, None)

    def relist(self) -> "Relist":
        """Begin a list of all jobs: to be called before the list is requested."""
        return Relist(self, frozenset(self._jobs), frozenset(self._gone), self._newest)

    def take(self, obj: dict[str, Any], version: int, gone_before: frozenset[str], *, restored: bool) -> str | None:
        """Store a job of a list of this version, which may contradict the cache; return its uid if that changed it."""
        try:
            job = _parsed(obj)
        except InvalidJob:
            return None
        uid, known = job.metadata.uid, self._jobs.get(job.metadata.uid)
        if uid in self._gone and uid not in gone_before:
            return None  # deleted since the list was requested
        if known is not None and not restored and _version(known) > version:
            return None  # the response to a write since the list was requested
        if known is not None and _version(known) == _version(job):
            return None
        self._gone.pop(uid, None)
        self._store(known, job)
        return uid

    def restored(self, version: int) -> None:
        """Forget the versions of a past that the server no longer has."""
        self._newest = version

    def _store(self, known: PyTorchJob | None, job: PyTorchJob) -> None:
        self._jobs[job.metadata.uid] = job
        self._by_name[_name(job)] = job.metadata.uid
        self._newest = max(self._newest, _version(job))
        self._on_change(known, job)

    def __iter__(self) -> Iterator[PyTorchJob]:
        return iter(tuple(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def uids(self) -> frozenset[str]:
        """The uids of all jobs."""
        return frozenset(self._jobs)


class Relist:
    """One complete list of the jobs, page by page. It replaces what the cache knew before the list was requested.

    The server reads it from etcd. If it is older than what was known before, etcd was restored from a backup.
    """

    def __init__(self, cache: JobCache, uids: frozenset[str], gone: frozenset[str], newest: int) -> None:
        self._cache, self._uids, self._gone, self._newest = cache, uids, gone, newest
        self._living: set[str] = set()
        self._changed: list[str] = []

    def page(self, items: Iterable[dict[str, Any]], resource_version: str) -> None:
        """Store the jobs of one page."""
        version = int(resource_version) if resource_version.isdigit() else 0
        restored = 0 < version < self._newest
        if restored:
            self._cache.restored(version)
        for obj in items:
            self._living.add(obj["metadata"]["uid"])
            if uid := self._cache.take(obj, version, self._gone, restored=restored):
                self._changed.append(uid)

    def finish(self) -> list[str]:
        """Remove the jobs that the list lacks; return the uids of all jobs that changed."""
        gone = [uid for uid in self._uids - self._living if self._cache.get(uid) is not None]
        for uid in gone:
            self._cache.forget(uid)
        return self._changed + gone


def _parsed(obj: dict[str, Any]) -> PyTorchJob:
    try:
        return PyTorchJob.model_validate(obj)
    except ValidationError as error:
        problems = [Problem(".".join(map(str, detail["loc"])), detail["msg"]) for detail in error.errors()]
        raise InvalidJob(problems) from error


def _name(job: PyTorchJob) -> tuple[str, str]:
    return (job.metadata.namespace, job.metadata.name)


def _version(job: PyTorchJob) -> int:
    version = job.metadata.resource_version
    return int(version) if version.isdigit() else 0
