"""The coordinator of this operator: its credentials, its port, its news.

It serves from the moment at which this process comes to lead until the process ends, also while the lead cannot be
renewed: an API server that is away must not keep jobs from recovering. A rival that takes over has a later epoch, which
agents and rounds go by.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from pytorchjob_operator.app.credentials import load_credentials
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.coordinator.thread import Coordinator
from pytorchjob_operator.coordinator_update import CoordinatorUpdate
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube.client import Client
from pytorchjob_operator.kube.credentials import Credentials
from pytorchjob_operator.observed import CoordinatorAccess
from pytorchjob_operator.report import Report
from pytorchjob_operator.rounds.state import News
from pytorchjob_operator.settings import Settings

OnChange = Callable[[str, tuple[News, ...]], None]

LAG_SECONDS = 15.0
"""A coordinator that has not looked at the time for so long is stuck; it begins anew by itself where it can."""


class CoordinatorService:
    """Run a coordinator if the settings ask for one; without one, reports are None and updates go nowhere."""

    def __init__(self, settings: Settings, on_change: OnChange) -> None:
        """`on_change(uid, news)` is called in the loop that made this."""
        self._settings, self._on_change = settings, on_change
        self._loop = asyncio.get_running_loop()
        self._credentials: Credentials | None = None
        self._coordinator: Coordinator | None = None

    async def prepare(self, client: Client, namespace: str) -> CoordinatorAccess | None:
        """Read or make the credentials; returns what pods are told, None without a coordinator."""
        settings = self._settings
        if not settings.coordinator:
            return None
        self._credentials = await load_credentials(client, namespace, settings.coordinator_secret)
        ca = self._credentials.ca if settings.coordinator_tls else ""
        return CoordinatorAccess(settings.coordinator_address, self._credentials.key, ca)

    def start(self, epoch: int) -> None:
        """Open the port; `epoch` is later than that of every leader before. Raises OperatorError if it is taken."""
        if self._credentials is None:
            return
        context = self._credentials.server_context() if self._settings.coordinator_tls else None
        self._coordinator = Coordinator(self._credentials.key, epoch, context, self._changed)
        try:
            self._coordinator.start("", self._settings.coordinator_port)
        except OSError as error:
            raise OperatorError(
                f"the coordinator cannot open port {self._settings.coordinator_port}: {error}"
            ) from error

    async def stop(self) -> None:
        """Close the port and all connections: the agents look for the next leader."""
        if self._coordinator is not None:
            await asyncio.to_thread(self._coordinator.stop)

    def trouble(self) -> str | None:
        """What is wrong with it, if anything."""
        lag = self._coordinator.lag() if self._coordinator else 0.0
        return f"the coordinator has not looked for {lag:.0f} s" if lag > LAG_SECONDS else None

    def publish(self, metrics: Metrics) -> None:
        """Show how many agents there are."""
        metrics.gauge(
            "coordinator_connections", "Agents that are connected.", lambda: float(self._count("connections"))
        )
        metrics.gauge("coordinator_refusals", "Agents that were not let in.", lambda: float(self._count("refusals")))

    def report(self, uid: str) -> Report | None:
        """Return how a job's rounds stand; None if the coordinator does not know the job."""
        return self._coordinator.report(uid) if self._coordinator else None

    def apply(self, uid: str, update: CoordinatorUpdate) -> None:
        """Apply what a plan decided about a job."""
        if self._coordinator is not None:
            self._coordinator.apply(uid, update)

    def _count(self, what: str) -> int:
        return int(getattr(self._coordinator, what)) if self._coordinator else 0

    def _changed(self, uid: str, news: tuple[News, ...]) -> None:
        """In the coordinator's thread."""
        with suppress(RuntimeError):  # the process ends, and its loop is closed
            self._loop.call_soon_threadsafe(self._on_change, uid, news)
