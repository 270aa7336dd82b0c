"""The coordinator of this operator: its credentials, its port, its events.

It serves from the moment at which this process becomes the leader until the process ends, also while the Lease cannot
be renewed: an API server outage must not prevent jobs from recovering. A new leader has a higher term, which takes
precedence with agents and in round ids.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytorchjob_operator.app.key_ring import KeyRing
from pytorchjob_operator.app.metrics import Metrics
from pytorchjob_operator.app.pod_identity import PodIdentity
from pytorchjob_operator.app.secret import load_credentials, renew_credentials
from pytorchjob_operator.app.waiting import event_or_timeout
from pytorchjob_operator.coordinator.capacity import find_limits
from pytorchjob_operator.coordinator.jobs import no_certificates
from pytorchjob_operator.coordinator.recorder import Recording
from pytorchjob_operator.coordinator.thread import Coordinator, Hooks
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import CoordinatorUpdate
from pytorchjob_operator.errors import OperatorError
from pytorchjob_operator.kube import certificate
from pytorchjob_operator.kube.client import ApiClient
from pytorchjob_operator.kube.credentials import Credentials
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.observed import CoordinatorAccess, Pod
from pytorchjob_operator.rounds.state import JobEvent
from pytorchjob_operator.settings import Settings

OnChange = Callable[[str, tuple[JobEvent, ...]], None]

logger = logging.getLogger(__name__)
LAG_SECONDS = 15.0
"""A coordinator whose thread has been silent for this long is stuck; it restarts itself if it can."""
RENEW_SECONDS = 60.0
"""How often the credentials are read again: the leader then notices that their Secret is gone."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """What the coordinator needs of the cluster."""

    client: ApiClient
    writer: ApiClient
    """For what only the leader may write."""
    namespace: str
    """The operator's own, where its Secret is."""
    pods: Store[Pod]
    """The pods of all jobs."""
    outage: Callable[[], float]
    """Seconds since the API server last sent something. Called from the coordinator's thread too."""
    may_write: Callable[[], bool]
    """Whether this process is the leader."""


@dataclass(frozen=True, slots=True)
class ServiceHooks:
    """What the service calls."""

    on_change: OnChange
    """Called with a job's uid and its new events when its report changes."""
    on_access: Callable[[CoordinatorAccess], None]
    """Called with what new pods need to reach the coordinator, when it is known and when it changes."""


class CoordinatorService:
    """Run a coordinator if the settings ask for one; without one there is no report, and updates are ignored."""

    def __init__(self, settings: Settings, cluster: ClusterAccess, hooks: ServiceHooks) -> None:
        """Prepare; the hooks are called in the event loop that creates this object."""
        self._settings, self._cluster, self._hooks = settings, cluster, hooks
        self._loop = asyncio.get_running_loop()
        self._credentials: Credentials | None = None
        self._keys: KeyRing | None = None
        self._prepared, self._due = asyncio.Event(), asyncio.Event()
        self._coordinator: Coordinator | None = None

    async def prepare(self) -> None:
        """Read or create the credentials, and read the API server's public keys. Raises OperatorError."""
        if not self._settings.coordinator:
            return
        cluster, name = self._cluster, self._settings.coordinator_secret
        self._use(await load_credentials(cluster.client, cluster.namespace, name))
        self._keys = KeyRing(cluster.client)
        await self._keys.load()
        self._prepared.set()

    async def run(self) -> None:
        """Renew the API server's public keys and the credentials as long as the process lives."""
        await self._prepared.wait()
        assert self._keys is not None
        await asyncio.gather(self._keys.run(), self._renew())

    async def _renew(self) -> None:
        """Read the credentials again from time to time, and at once as a new leader. The leader rotates them."""
        cluster, name = self._cluster, self._settings.coordinator_secret
        while True:
            await event_or_timeout(self._due, RENEW_SECONDS)
            self._due.clear()
            try:
                writer = cluster.writer if cluster.may_write() and self._coordinator is not None else None
                assert self._credentials is not None
                self._use(await renew_credentials(cluster.client, cluster.namespace, name, self._credentials, writer))
            except OperatorError as error:
                logger.warning("the coordinator's certificate could not be renewed: %s", error)

    def _use(self, found: Credentials) -> None:
        """Use these credentials for new connections and for new pods, or for neither: raises OperatorError before."""
        before, settings = self._credentials, self._settings
        if found == before:
            return
        context = found.server_context() if settings.coordinator_tls else None
        self._credentials = found
        self._hooks.on_access(CoordinatorAccess(settings.coordinator_address, found.ca if context else ""))
        other = before is not None and found.certificate_pem != before.certificate_pem
        if other and self._coordinator is not None and context is not None:
            self._coordinator.use_tls(context)

    def start(self, term: int) -> None:
        """Open the port; `term` is higher than that of every earlier leader. Raises OperatorError if it is in use."""
        if self._credentials is None or self._keys is None:
            return
        context = self._credentials.server_context() if self._settings.coordinator_tls else None
        hooks = Hooks(self._changed, self._recorder(), _round_certificates if context else no_certificates)
        checks = self._settings.coordinator_check_addresses
        identity = PodIdentity(self._keys, self._cluster.pods, self._cluster.outage, checks)
        self._coordinator = Coordinator(identity, term, context, hooks, find_limits())
        try:
            self._coordinator.start("", self._settings.coordinator_port)
        except OSError as error:
            raise OperatorError(
                f"the coordinator cannot open port {self._settings.coordinator_port}: {error}; free the port, or set"
                " another port by PYTORCHJOB_OPERATOR_COORDINATOR_PORT"
            ) from error
        self._due.set()

    def _recorder(self) -> Recording | None:
        path = self._settings.coordinator_recording
        try:
            return Recording(Path(path)) if path else None
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
        metrics.gauge(
            "coordinator_certificate_expiry_timestamp_seconds",
            "When the coordinator's certificate expires, in seconds since 1970; 0: there is none.",
            lambda: self._credentials.expiry.timestamp() if self._credentials else 0.0,
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
            self._loop.call_soon_threadsafe(self._hooks.on_change, uid, events)


def _round_certificates(size: int) -> list[str]:
    """Return the certificates of a new round, one for each member."""
    return certificate.make_for_members(datetime.now(UTC), size)
