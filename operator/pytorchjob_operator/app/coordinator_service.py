"""The coordinator of this operator: its credentials, its port, its events.

It serves from the moment at which this process becomes the leader until the process ends, also while the Lease cannot
be renewed: an API server outage must not prevent jobs from recovering. A new leader has a higher term, which takes
precedence with agents and in round ids.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.secret import load_credentials
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.capacity import find_limits
from pytorchjob_operator.coordinator.recorder import Recorder
from pytorchjob_operator.coordinator.thread import Coordinator, Hooks
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.credentials import Credentials
from pytorchjob_operator.observed import CoordinatorAccess
from pytorchjob_operator.rounds.state import JobEvent
from pytorchjob_operator.settings import Settings

OnChange = Callable[[str, tuple[JobEvent, ...]], None]

LAG_SECONDS = 15.0
"""A coordinator whose thread has been silent for this long is stuck; it restarts itself if it can."""


class CoordinatorService:
    """Run a coordinator if the settings ask for one; without one there is no report, and updates are ignored."""

    def __init__(self, settings: Settings, on_change: OnChange) -> None:
        """`on_change(uid, events)` is called in the event loop that created this object."""
        self._settings, self._on_change = settings, on_change
        self._loop = asyncio.get_running_loop()
        self._credentials: Credentials | None = None
        self._coordinator: Coordinator | None = None

    async def prepare(self, client: ApiClient, namespace: str) -> CoordinatorAccess | None:
        """Read or create the credentials; returns the address and CA for the pods, None without a coordinator."""
        settings = self._settings
        if not settings.coordinator:
            return None
        self._credentials = await load_credentials(client, namespace, settings.coordinator_secret)
        ca = self._credentials.ca if settings.coordinator_tls else ""
        return CoordinatorAccess(settings.coordinator_address, self._credentials.key, ca)

    def start(self, term: int) -> None:
        """Open the port; `term` is higher than that of every earlier leader. Raises OperatorError if it is in use."""
        if self._credentials is None:
            return
        context = self._credentials.server_context() if self._settings.coordinator_tls else None
        hooks = Hooks(self._changed, self._recorder())
        self._coordinator = Coordinator(KeyedTokens(self._credentials.key), term, context, hooks, find_limits())
        try:
            self._coordinator.start("", self._settings.coordinator_port)
        except OSError as error:
            raise OperatorError(
                f"the coordinator cannot open port {self._settings.coordinator_port}: {error}; free the port, or set"
                " another port by PYTORCHJOB_OPERATOR_COORDINATOR_PORT"
            ) from error

    def _recorder(self) -> Recorder | None:
        path = self._settings.coordinator_recording
        try:
            return Recorder(Path(path)) if path else None
        except OSError as error:
            raise OperatorError(f"the coordinator cannot record to {path}: {error}") from error

    async def stop(self) -> None:
        """Close the port and all connections; the agents reconnect to the next leader."""
        if self._coordinator is not None:
            await asyncio.to_thread(self._coordinator.stop)

    def problem(self) -> str | None:
        """Return what is wrong with the coordinator; None if it works."""
        lag = self._coordinator.lag() if self._coordinator else 0.0
        return f"the coordinator has been stuck for {lag:.0f} s" if lag > LAG_SECONDS else None

    def publish(self, metrics: Metrics) -> None:
        """Register the metrics of the coordinator's connections."""
        metrics.gauge(
            "coordinator_connections",
            "Connected agents.",
            lambda: float(self._coordinator.connections if self._coordinator else 0),
        )
        metrics.gauge(
            "coordinator_refusals",
            "Rejected connections.",
            lambda: float(self._coordinator.refusals if self._coordinator else 0),
        )
        metrics.gauge(
            "coordinator_displaced",
            "Connections without a hello that made room for others.",
            lambda: float(self._coordinator.displaced if self._coordinator else 0),
        )
        metrics.gauge(
            "coordinator_invariant_violations",
            "Decisions about rounds that violated an invariant and were not carried out.",
            lambda: float(self._coordinator.violations if self._coordinator else 0),
        )

    def report(self, uid: str) -> Report | None:
        """Return how a job's rounds stand; None if the coordinator does not know the job."""
        return self._coordinator.report(uid) if self._coordinator else None

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job."""
        if self._coordinator is not None:
            self._coordinator.apply(uid, update)

    def _changed(self, uid: str, events: tuple[JobEvent, ...]) -> None:
        """Pass a change on to the event loop; the coordinator's thread calls this."""
        with suppress(RuntimeError):  # the process ends, and its loop is closed
            self._loop.call_soon_threadsafe(self._on_change, uid, events)
