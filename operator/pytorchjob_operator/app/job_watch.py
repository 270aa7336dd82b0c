"""The watch of PyTorchJobs, which is kopf's part: kopf calls one handler per event, which only passes the event on.

There is no create, update or delete handler, timer, daemon or index: those would put finalizers and annotations on
users' jobs (docs/decisions/0001-architecture.md). kopf lists again after HTTP 410. After a stream error that it does
not know it ends itself and cancels every task of its event loop. Therefore it runs in a thread with a loop of its own,
and `JobWatch` starts it again. `Contacts` notes when each of kopf's watches last received data: kopf does not show it.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import kopf

from pytorchjob_operator import names
from pytorchjob_operator.kube.endpoint import ApiEndpoint

OnEvent = Callable[[str | None, dict[str, Any]], None]
"""Called in kopf's thread with the event's type (None for an object of the first list) and the object."""

logger = logging.getLogger(__name__)
_RESTART_SECONDS = 5.0
_STEADY_SECONDS = 15.0
_MOST_PAUSE_SECONDS = 5.0
_LASTING = (18, 24)
"""Bounds of a watch's length in seconds. The API server sends a bookmark two seconds before it ends."""
_SILENCE_SECONDS = 28
"""kopf opens a watch again that has been silent for this long."""


class _Endless:
    """An infinite sequence of back-offs, so that no outage of the API server ends the process."""

    def __iter__(self) -> Iterator[float]:
        seconds = 0.5
        while True:
            yield seconds * random.uniform(0.75, 1.25)  # noqa: S311
            seconds = min(seconds * 2, _MOST_PAUSE_SECONDS)


class Contacts:
    """When the watches of jobs last received data; kopf's thread notes it, the event loop reads it."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._last: dict[str, float] = {}

    def note(self, watch: str) -> None:
        """This watch has received data, or has been opened."""
        self._last[watch] = time.monotonic()

    def age(self) -> float:
        """Seconds since the most silent watch received data."""
        return time.monotonic() - min(tuple(self._last.values()), default=self._since)


class _NotedContent:
    """The body of a watch; notes each part that kopf reads."""

    def __init__(self, content: aiohttp.StreamReader, note: Callable[[], None]) -> None:
        self._content, self._note = content, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the parts as they arrive."""
        async for part in self._content.iter_chunked(size):
            self._note()
            yield part


def _noting(contacts: Contacts) -> type[aiohttp.ClientResponse]:
    class Noted(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            if "watch" in self.url.query:
                contacts.note(self.url.path)
                self.content = _NotedContent(self.content, lambda: contacts.note(self.url.path))  # type: ignore[assignment]
            return self

    return Noted


class _NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing on users' objects, and avoids the copies that kopf would compare."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """Stores nothing on users' objects."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def build_settings() -> kopf.OperatorSettings:
    """Settings with which kopf writes nothing and never gives up."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.networking.error_backoffs = _Endless()
    settings.networking.request_timeout = 30
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = random.randint(*_LASTING)  # noqa: S311
    settings.watching.inactivity_timeout = _SILENCE_SECONDS
    settings.execution.max_workers = 2
    settings.process.ultimate_exiting_timeout = None  # with a timeout kopf would kill the whole operator
    return settings


def build_registry(
    connection: ApiEndpoint, user_agent: str, on_event: OnEvent, contacts: Contacts
) -> kopf.OperatorRegistry:
    """The two handlers: login, and one event of a job."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        """Create a session for kopf, which closes it after a 401 and calls this again."""
        token = await connection.token(fresh=True)
        headers = {"User-Agent": user_agent} | ({"Authorization": f"Bearer {token}"} if token else {})
        secure = connection.server.startswith("https:")
        tls = connection.ssl_context() if secure else True
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        session = aiohttp.ClientSession(connector=connector, headers=headers, response_class=_noting(contacts))
        return kopf.AiohttpSession(aiohttp_session=session, server=connection.server)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def job_changed(event: kopf.RawEvent, **_: Any) -> None:
        on_event(event["type"], dict(event["object"]))

    return registry


class JobWatch:
    """kopf in a thread of its own, started again whenever it ends before `stop`."""

    def __init__(self, registry: kopf.OperatorRegistry, namespaces: tuple[str, ...], contacts: Contacts) -> None:
        self._registry = registry
        self._contacts = contacts
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._stop_kopf: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._started = time.monotonic()
        self._ended_by = ""
        self.restarts = 0

    def start(self) -> None:
        """Start the watch."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop kopf, and wait at most this many seconds for its end."""
        self._stop.set()
        self._stop_kopf()
        self._thread.join(seconds)

    @property
    def alive(self) -> bool:
        """True while the thread runs; only `stop` ends it."""
        return self._thread.is_alive()

    def last_contact_age(self) -> float:
        """Seconds since the API server last sent data, for the most silent watch."""
        return self._contacts.age()

    def problem(self) -> str | None:
        """Return why the jobs are not watched; an end of kopf counts until kopf has run for a while again."""
        if not self.alive:
            return "PyTorchJobs are not watched yet; check that the CRD is installed"
        steady = time.monotonic() - self._started > _STEADY_SECONDS
        return None if steady or not self._ended_by else f"the watch of PyTorchJobs ended: {self._ended_by}"

    def _run(self) -> None:
        while not self._stop.is_set():
            self._started = time.monotonic()
            try:
                asyncio.run(self._operator())
            # The top of the loop: no error of kopf may end the operator.
            except (Exception, asyncio.CancelledError) as error:
                self._ended_by = str(error) or type(error).__name__
                logger.warning("kopf ended and is restarted: %s", self._ended_by)
            if not self._stop.wait(_RESTART_SECONDS):
                self.restarts += 1

    async def _operator(self) -> None:
        # An asyncio.Event: for a threading.Event kopf starts a waiting thread, which outlives kopf and blocks its end.
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._stop_kopf = lambda: loop.is_closed() or loop.call_soon_threadsafe(stop.set)
        if self._stop.is_set():
            return
        await kopf.operator(
            registry=self._registry,
            settings=build_settings(),
            standalone=True,
            # Without an identity kopf resolves the user's name, and images have no password entry for an arbitrary uid.
            identity=names.CONTROLLER,  # type: ignore[arg-type]
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=stop,
        )
