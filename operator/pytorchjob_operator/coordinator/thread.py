"""The coordinator as the rest of the operator sees it: a thread with a loop of its own, told what to expect, asked how
things stand.

Whatever an operator does meanwhile, its agents are answered. If the loop breaks it is begun anew with what is known.
"""

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import assert_never

from pytorchjob_operator.coordinator import tls
from pytorchjob_operator.coordinator.jobs import Jobs, OnChange
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import Server
from pytorchjob_operator.coordinator_update import CoordinatorUpdate, Finish, Forget, Sync
from pytorchjob_operator.report import Report
from pytorchjob_operator.rounds.report import report
from pytorchjob_operator.rounds.state import News, Policy, Seat

_log = logging.getLogger(__name__)
_BACKLOG = 4096
_AGAIN = 1.0
"""Seconds before a loop that broke is begun anew."""
_PATIENCE = 10.0
"""Seconds for the thread to end."""


class Coordinator:
    """Runs the rounds of all jobs; every method may be called from any thread."""

    def __init__(
        self,
        key: bytes,
        term: int,
        ssl_context: ssl.SSLContext | None = None,
        on_change: OnChange | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`term` grows with each leader; `on_change(uid, news)` is called from the coordinator's own thread."""
        self._key, self._ssl, self._limits = key, ssl_context, limits or Limits()
        self._on_change = on_change
        self._jobs = Jobs(term, _clock, self._changed, self._limits)
        self._expected: dict[str, tuple[Policy, Mapping[int, Seat]] | bool] = {}
        """What is expected of each job; of one that has ended, whether it has failed."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stopping = False
        self._listener: socket.socket | None = None
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self, host: str, port: int) -> int:
        """Open the port (0: any; host "": every address) and serve it; raises OSError. Returns the port."""
        if self._ssl is not None:
            tls.save_memory()
            tls.save_work(self._ssl)
        self._listener = _listen(host, port)
        self._jobs.looked = _clock()
        self._thread.start()
        return int(self._listener.getsockname()[1])

    def stop(self) -> None:
        """Close the port and every connection: the agents look for the next coordinator."""
        with self._lock:
            self._stopping = True
            loop, serving = self._loop, self._serving
            if loop is not None and serving is not None:
                loop.call_soon_threadsafe(serving.cancel)
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)
        if self._listener is not None:
            self._listener.close()

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job; repeating an update changes nothing."""
        match update:
            case Sync(policy, pods):
                self.expect(uid, policy, pods)
            case Finish(failed):
                self.conclude(uid, failed=failed)
            case Forget():
                self.forget(uid)
            case _:
                assert_never(update)

    def expect(self, uid: str, policy: Policy, seats: Mapping[int, Seat]) -> None:
        """Tell what a job is now: its rule, and its replicas by index."""
        with self._lock:
            if self._expected.get(uid) == (policy, seats):
                return
            seats = dict(seats)
            self._expected[uid] = (policy, seats)
            self._call(lambda: self._jobs.expect(uid, policy, seats))

    def conclude(self, uid: str, *, failed: bool) -> None:
        """Tell that a job has ended: its agents are told to stop, those that come later too, until it is forgotten."""
        with self._lock:
            if self._expected.get(uid) is not failed:
                self._expected[uid] = failed
                self._call(lambda: self._jobs.conclude(uid, failed=failed))

    def forget(self, uid: str) -> None:
        """Tell that a job is over or gone; its agents are sent away."""
        with self._lock:
            if self._expected.pop(uid, None) is not None:
                self._call(lambda: self._jobs.forget(uid))

    def report(self, uid: str) -> Report | None:
        """Return how a job's rounds stand now; None for one that was never expected."""
        state = self._jobs.state(uid)
        return None if state is None else report(state, _clock())

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._server.connections if self._server else 0

    @property
    def refusals(self) -> int:
        """How many agents and strangers were not let in since it was started."""
        return self._server.refusals if self._server else 0

    def lag(self) -> float:
        """Seconds by which its clock is late; 0 before it is started."""
        return max(_clock() - self._jobs.looked, 0.0) if self._listener is not None else 0.0

    def _call(self, what: Callable[[], None]) -> None:
        """Have it done in the loop, if there is one; otherwise the next one begins with what is expected."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(what)

    def _changed(self, uid: str, news: tuple[News, ...]) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(uid, news)
        except Exception:  # what others do with it must not stop the rounds
            _log.exception("job %s: a change could not be handed on", uid)

    def _run(self) -> None:
        while not self._stopping:
            try:
                asyncio.run(self._serve())
            except Exception:  # a loop that breaks is begun anew: the agents come back by themselves
                _log.exception("the coordinator broke and begins anew")
            if not self._stopping:
                time.sleep(_AGAIN)

    async def _serve(self) -> None:
        assert self._listener is not None
        server = Server(self._key, self._jobs, _clock, self._ssl, self._limits)
        serving = asyncio.create_task(server.serve(self._listener))
        with self._lock:
            self._loop, self._serving = asyncio.get_running_loop(), serving
            self._server = server
            for uid, expected in self._expected.items():
                if isinstance(expected, bool):
                    self._jobs.conclude(uid, failed=expected)
                else:
                    self._jobs.expect(uid, *expected)
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
    """Open a port; without a host, on every address of both families where the machine has them."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
