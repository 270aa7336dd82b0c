"""The back end of a cluster: a thin layer over `Cluster`, and over the merged logs of a job's pods."""

import queue
from collections.abc import Iterator, Mapping, Sequence
from threading import Event, Thread
from typing import Any

from pytorchjob.client.backend import Object
from pytorchjob.cluster.api import Cluster
from pytorchjob.cluster.errors import JobMissing
from pytorchjob.logs.printing import Entry
from pytorchjob.logs.ranks import parse_ranks
from pytorchjob.logs.session import LogOptions, LogSession
from pytorchjob_operator import names

_MOST_BATCHES = 64
"""Batches of lines that wait for a slow reader; then the reading of the pods' logs waits too."""


class ClusterBackend:
    """Jobs of one namespace of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Use this connection."""
        self._cluster = cluster

    def create(self, job: Object) -> Object:
        """See `Backend`."""
        return self._cluster.create(job)

    def get(self, name: str) -> Object:
        """See `Backend`."""
        return self._cluster.job(name)

    def list(self) -> Sequence[Object]:
        """See `Backend`."""
        return self._cluster.jobs()

    def patch(self, name: str, change: Mapping[str, Any]) -> Object:
        """See `Backend`."""
        return self._cluster.patch(name, dict(change))

    def delete(self, name: str) -> None:
        """See `Backend`."""
        self._cluster.delete(name)

    def logs(self, name: str, *, follow: bool, ranks: str) -> Iterator[str]:
        """See `Backend`; with `follow` until the job ends."""
        options = LogOptions(names.CONTAINER, ranks=parse_ranks(ranks) if ranks else None)
        self._cluster.job(name)  # a missing job is an error, a job without pods is not
        yield from _Lines(self._cluster, name, options, follow=follow)

    def events(self, name: str) -> Sequence[Object]:
        """See `Backend`."""
        pods = [pod["metadata"]["name"] for pod in self._cluster.pods(name)]
        return self._cluster.events([name, *pods])


class _Lines:
    """Turns a session, which writes lines, into an iterator of lines. A reader that stops early ends the session."""

    def __init__(self, cluster: Cluster, job: str, options: LogOptions, *, follow: bool) -> None:
        self._cluster, self._job, self._follow = cluster, job, follow
        self._session = LogSession(cluster, job, options, lambda text: None)
        self._batches: queue.Queue[Sequence[Entry] | Exception | None] = queue.Queue(_MOST_BATCHES)
        self._left = Event()

    def __iter__(self) -> Iterator[str]:
        Thread(target=self._run, name=f"logs of {self._job}", daemon=True).start()
        try:
            while (batch := self._batches.get()) is not None:
                if isinstance(batch, Exception):
                    raise batch
                for entry in batch:
                    yield f"[{entry.label}] {entry.text.decode(errors='replace')}"
        finally:
            self._left.set()

    def _run(self) -> None:
        try:
            pods = self._cluster.pods(self._job)
            if self._follow:
                self._session.follow(pods, self._write)
            else:
                self._session.read(pods, self._write)
            self._put(None)
        except JobMissing:
            self._put(None)
        except _ReaderLeftError:
            pass
        except Exception as error:  # the reader's thread raises it
            self._put(error)

    def _write(self, batch: Sequence[Entry]) -> None:
        self._put(batch)

    def _put(self, batch: Sequence[Entry] | Exception | None) -> None:
        while True:
            if self._left.is_set():
                raise _ReaderLeftError
            try:
                self._batches.put(batch, timeout=0.2)
            except queue.Full:
                continue
            return


class _ReaderLeftError(Exception):
    """The reader of the lines has stopped."""
