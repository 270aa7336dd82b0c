"""Kubernetes Events, which `kubectl describe` shows: few, and never in the way of other work.

A repeated event increases the count of the existing one. The rate is limited per object and in total. An event that
cannot be sent is dropped: no caller ever waits for an event.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from pytorchjob_operator.errors import ApiError, NotFound
from pytorchjob_operator.kube.client import ApiClient, Object
from pytorchjob_operator.kube.resource import EVENTS
from pytorchjob_operator.names import EventType

K = TypeVar("K")
V = TypeVar("V")
_log = logging.getLogger(__name__)
_MAX_MESSAGE = 1024
_MAX_NAME = 253


class Involved(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Reporter(NamedTuple):
    """The component that reports, and its instance."""

    component: str
    instance: str


class _Note(NamedTuple):
    involved: Involved
    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """Rate limits and sizes; those per object are client-go's."""

    burst: int = 25
    refill_seconds: float = 300.0
    per_second: float = 10.0
    queue: int = 1000
    remembered: int = 4096


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Sent:
    name: str
    count: int


class Recorder:
    """Accepts events without waiting; `run` sends them."""

    def __init__(
        self,
        client: ApiClient,
        reporter: Reporter,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        settings: RecorderSettings | None = None,
    ) -> None:
        self._client = client
        self._reporter = reporter
        self._clock = clock
        self._wall = wall
        self._settings = settings or RecorderSettings()
        self._queue: asyncio.Queue[_Note] = asyncio.Queue(self._settings.queue)
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._sent: OrderedDict[_Note, _Sent] = OrderedDict()
        self.dropped = 0

    def event(self, involved: Involved, kind: EventType, reason: str, message: str) -> None:
        """Queue an event; it may be dropped, and the call never waits."""
        if not self._allowed(involved.uid) or self._queue.full():
            self.dropped += 1
            return
        self._queue.put_nowait(_Note(involved, kind, reason, message[:_MAX_MESSAGE]))

    async def run(self) -> None:
        """Send the queued events at a bounded rate, until cancelled."""
        while True:
            note = await self._queue.get()
            try:
                await self._send(note)
            except ApiError as error:
                self.dropped += 1
                _log.info("event %s of %s: dropped: %s", note.reason, note.involved.name, error)
            except Exception:  # top of the loop: one malformed event may not stop all others
                self.dropped += 1
                _log.exception("event %s of %s: dropped", note.reason, note.involved.name)
            self._queue.task_done()
            await asyncio.sleep(1.0 / self._settings.per_second)

    async def drained(self) -> None:
        """Wait until every queued event has been sent or dropped."""
        await self._queue.join()

    async def _send(self, note: _Note) -> None:
        sent = self._sent.get(note)
        if sent and await self._counted(note, sent):
            return
        body = self._body(note)
        await self._client.create(EVENTS, note.involved.namespace, body)
        _remember(self._sent, note, _Sent(body["metadata"]["name"], 1), self._settings.remembered)

    async def _counted(self, note: _Note, sent: _Sent) -> bool:
        """Increase the count of the same event; False if the server has removed it."""
        patch = {"count": sent.count + 1, "lastTimestamp": _time(self._wall())}
        try:
            await self._client.patch(EVENTS, note.involved.namespace, sent.name, patch)
        except NotFound:
            return False
        sent.count += 1
        self._sent.move_to_end(note)
        return True

    def _body(self, note: _Note) -> Object:
        now, about = _time(self._wall()), note.involved
        suffix = secrets.token_hex(8)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about.name[: _MAX_NAME - 17]}.{suffix}", "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": note.type.value,
            "reason": note.reason,
            "message": note.message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._reporter.component},
            "reportingComponent": self._reporter.component,
            "reportingInstance": self._reporter.instance,
        }

    def _allowed(self, uid: str) -> bool:
        now, most = self._clock(), float(self._settings.burst)
        bucket = self._buckets.get(uid) or _Bucket(most, now)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.at) / self._settings.refill_seconds)
        bucket.at = now
        _remember(self._buckets, uid, bucket, self._settings.remembered)
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True


def _remember(memory: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > most:
        memory.popitem(last=False)


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
