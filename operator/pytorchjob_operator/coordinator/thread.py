"""The coordinator as the rest of the operator sees it: a thread with its own loop.

Agents get answers whatever else the operator does. If the loop fails, it restarts with what is known.
"""

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pytorchjob_operator.coordinator import tls
from pytorchjob_operator.coordinator.authentication import Authenticator
from pytorchjob_operator.coordinator.jobs import Jobs, OnChange, Record, no_certificates
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import Server
from pytorchjob_operator.coordinator.usage import Title
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.goodput.ledger import JobStage
from pytorchjob_operator.rounds.state import JobEvent, JobSynced

_log = logging.getLogger(__name__)
_BACKLOG = 4096
_RESTART_SECONDS = 1.0
"""Seconds before a loop that failed starts again."""
_STOP_SECONDS = 10.0
"""Seconds for the thread to end."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the coordinator calls, in its own thread."""

    on_change: OnChange | None = None
    """Called with a job's uid and its new events when its report changes."""
    record: Record | None = None
    """Called before each decision, to record it."""
    make_certificates: Callable[[int], Sequence[str]] = no_certificates
    """Called for each round with its size; returns each member's certificate with its private key, or empty texts."""


class Coordinator:
    """Forms the rounds of all jobs. Every method may be called from any thread."""

    def __init__(
        self,
        authenticator: Authenticator,
        term: int,
        ssl_context: ssl.SSLContext | None = None,
        hooks: Hooks | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`authenticator` checks each agent. `term` grows with each leader."""
        self._authenticator, self._ssl, self._limits = authenticator, ssl_context, limits or Limits()
        self._hooks = hooks or Hooks()
        self._jobs = Jobs(term, _clock, self._changed, self._limits, self._hooks.record)
        self._jobs.make_certificates = self._hooks.make_certificates
        self._updates: dict[str, Sync | Finish] = {}
        """The last update of each job, for a loop that restarts."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopping = False
        self._listener: socket.socket | None = None
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self, host: str, port: int) -> int:
        """Open the port and serve it; return it. Port 0: any; host "": all addresses. Raises OSError."""
        if self._ssl is not None:
            tls.save_work(self._ssl)
        self._listener = _listen(host, port)
        self._jobs.ticked_at = _clock()
        self._thread.start()
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        """Close the port and all connections. The agents search for the next coordinator."""
        with self._lock:
            self._stopping = True
            loop, serving = self._loop, self._serving
            if loop is not None and serving is not None:
                loop.call_soon_threadsafe(serving.cancel)
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        if self._listener is not None:
            self._listener.close()

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Use another certificate for new connections. Connections that exist keep theirs."""
        tls.save_work(context)
        with self._lock:
            self._ssl = context
            if self._loop is not None and self._server is not None:
                self._loop.call_soon_threadsafe(self._server.use_tls, context)

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job. A repeated update changes nothing."""
        with self._lock:
            known = self._updates.get(uid)
            if update == known or (known is None and isinstance(update, Forget)):
                return
            match update:
                case Sync():
                    self._updates[uid] = update = replace(update, pods=dict(update.pods))
                case Finish():
                    self._updates[uid] = update
                case Forget():
                    del self._updates[uid]
                case _:
                    assert_never(update)
            if self._loop is not None:  # otherwise the next loop starts with the stored updates
                self._loop.call_soon_threadsafe(self._apply, uid, update)

    def _apply(self, uid: str, update: CoordinatorUpdate) -> None:
        match update:
            case Sync(policy, pods, name, namespace, restarts, terminating, trained, stage, ledger):
                synced = JobSynced(policy, pods, restarts, terminating, trained)
                lacks = stage is JobStage.WAITING_FOR_PODS
                self._jobs.sync_job(uid, synced, Title(name, namespace), ledger, lacks_pods=lacks)
            case Finish(failed):
                self._jobs.finish_job(uid, failed=failed)
            case Forget():
                self._jobs.forget_job(uid)
            case _:
                assert_never(update)

    def report(self, uid: str) -> Report | None:
        """Return the state of a job's training now. None: the job was never synced."""
        return self._jobs.report(uid, _clock())

    @property
    def connections(self) -> int:
        """Open connections."""
        return self._server.connections if self._server else 0

    @property
    def refusals(self) -> int:
        """Refused connections since the start."""
        return self._server.refusals if self._server else 0

    @property
    def displaced(self) -> int:
        """Connections without a hello that made room for others since the start."""
        return self._server.displaced if self._server else 0

    @property
    def violations(self) -> int:
        """Decisions that violated an invariant since the start. Each is a defect, and was not carried out."""
        return self._jobs.violations

    def lag(self) -> float:
        """Return the seconds since the last tick; 0 before the start."""
        return max(_clock() - self._jobs.ticked_at, 0.0) if self._listener is not None else 0.0

    def _changed(self, uid: str, events: tuple[JobEvent, ...]) -> None:
        if self._hooks.on_change is None:
            return
        try:
            self._hooks.on_change(uid, events)
        except Exception:  # a defect of the receiver must not stop the rounds
            _log.exception("job %s: a change could not be passed on", uid)

    def _run(self) -> None:
        while not self._stopping:
            try:
                asyncio.run(self._serve())
            except Exception:  # the loop restarts, and the agents reconnect
                _log.exception("the coordinator failed and restarts")
            if not self._stopping:
                time.sleep(_RESTART_SECONDS)

    async def _serve(self) -> None:
        assert self._listener is not None
        with self._lock:  # a call of another thread is in what is read here, or finds the loop
            server = Server(self._authenticator, self._jobs, _clock, self._ssl, self._limits)
            serving = asyncio.create_task(server.serve(self._listener))
            self._loop, self._serving, self._server = asyncio.get_running_loop(), serving, server
            for uid, update in self._updates.items():
                self._apply(uid, update)
            if self._stopping:
                serving.cancel()
        try:
            await asyncio.wait({serving})
        finally:
            with self._lock:
                self._loop = self._serving = None
        if not serving.cancelled():
            serving.result()


def _clock() -> float:
    return time.monotonic()


def _listen(host: str, port: int) -> socket.socket:
    """Open a port; without a host, on all addresses of both families where the machine has them."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
