"""kopf's part: it watches the PyTorchJobs and calls one handler per event, which takes a note and returns.

No create, update or delete handler, timer, daemon or index: those would put finalizers and annotations on users' jobs
(docs/decisions/0001-architecture.md). kopf runs in a thread with a loop of its own, because it ends itself on stream
errors that it does not know and then cancels every task of its loop: here it is simply started again.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import kopf

from pytorchjob_operator import names
from pytorchjob_operator.kube.config import Connection

OnEvent = Callable[[str | None, dict[str, Any]], None]
"""Called in kopf's thread with the event's type (None for the first list) and the object."""

logger = logging.getLogger(__name__)
_RESTART_SECONDS = 5.0
_STEADY_SECONDS = 15.0


class _Endless:
    """Back-offs without an end, so that no outage of the API server is long enough to end the process."""

    def __iter__(self) -> Iterator[float]:
        seconds = 0.5
        while True:
            yield seconds * random.uniform(0.75, 1.25)  # noqa: S311
            seconds = min(seconds * 2, 15.0)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Stores nothing on users' objects, and spares the copies that kopf would compare."""

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
    """kopf, kept from writing anything and from giving up."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.networking.error_backoffs = _Endless()
    settings.networking.request_timeout = 30
    settings.watching.chunk_size = 500
    settings.watching.server_timeout = random.randint(290, 580)  # noqa: S311
    settings.execution.max_workers = 2
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process that it is a guest of
    return settings


def build_registry(connection: Connection, user_agent: str, on_event: OnEvent) -> kopf.OperatorRegistry:
    """The two handlers: how to log in, and what to do with an event."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        """A session of kopf's own: it closes the session on a 401, and asks here for a new one."""
        token = await connection.token(fresh=True)
        headers = {"User-Agent": user_agent} | ({"Authorization": f"Bearer {token}"} if token else {})
        secure = connection.server.startswith("https:")
        tls = connection.ssl_context() if secure else True
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=tls), headers=headers)
        return kopf.AiohttpSession(aiohttp_session=session, server=connection.server)

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    async def job_changed(event: kopf.RawEvent, **_: Any) -> None:
        on_event(event["type"], dict(event["object"]))

    return registry


class JobWatch:
    """kopf in a thread of its own, started again whenever it ends before it is told to."""

    def __init__(self, registry: kopf.OperatorRegistry, namespaces: tuple[str, ...]) -> None:
        self._registry = registry
        self._namespaces = namespaces
        self._stop = threading.Event()
        self._tell_kopf: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._started = time.monotonic()
        self._ended_by = ""
        self.restarts = 0

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Ask kopf to end, and wait for it for a while."""
        self._stop.set()
        self._tell_kopf()
        self._thread.join(seconds)

    @property
    def alive(self) -> bool:
        """Whether the thread still runs; it ends only when told to."""
        return self._thread.is_alive()

    def trouble(self) -> str | None:
        """Why the jobs are not watched; an end of kopf counts until it has stayed up for a while again."""
        if not self.alive:
            return "the jobs are not watched yet: is the CRD installed?"
        steady = time.monotonic() - self._started > _STEADY_SECONDS
        return None if steady or not self._ended_by else f"the watch of jobs ended: {self._ended_by}"

    def _run(self) -> None:
        while not self._stop.is_set():
            self._started = time.monotonic()
            try:
                asyncio.run(self._operator())
            # The top of the loop: whatever ends kopf may not end the operator.
            except (Exception, asyncio.CancelledError) as error:
                self._ended_by = str(error) or type(error).__name__
                logger.warning("kopf ended and is started again: %s", self._ended_by)
            if not self._stop.wait(_RESTART_SECONDS):
                self.restarts += 1

    async def _operator(self) -> None:
        # A flag of this loop: kopf waits for a threading one in a thread that outlives kopf and blocks its end.
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        self._tell_kopf = lambda: loop.is_closed() or loop.call_soon_threadsafe(stop.set)
        if self._stop.is_set():
            return
        await kopf.operator(
            registry=self._registry,
            settings=build_settings(),
            standalone=True,
            # Without one kopf asks the password database for a user, and an image has none for an arbitrary uid.
            identity=names.CONTROLLER,  # type: ignore[arg-type]
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=stop,
        )
