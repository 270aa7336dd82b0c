"""The thread that exchanges heartbeats with the other members, through the store of the round.

They report to the coordinator which peers are alive although it cannot see them, and to this agent whether it is alone.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pytorchjob_agent.contract.messages import Assigned
from pytorchjob_agent.rendezvous import agreement
from pytorchjob_agent.rendezvous.agreement import Heard, MemberStanding
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.system import network


class PeerHeartbeatThread:
    """Exchanges the heartbeats of one round."""

    def __init__(
        self,
        assigned: Assigned,
        connect: Callable[[], SignedStore],
        contact_at: Callable[[], float],
        on_restart: Callable[[], None],
    ) -> None:
        """Take what makes a store connection of its own: a call may block for seconds while the host is away.

        The thread makes the connection, because torch looks up the host's name: it waits for a lost name server.
        `contact_at` returns when this agent last heard from the control plane.
        """
        self._connect, self._contact_at, self._on_restart = connect, contact_at, on_restart
        self._store: SignedStore | None = None
        self._heartbeats = agreement.PeerHeartbeats(assigned, time.monotonic())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peer-heartbeats", daemon=True)

    def start(self) -> None:
        """Start; rank 0 has created the keys before."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a call that blocks."""
        self._stop.set()

    @property
    def restart(self) -> str | None:
        """Why a member asks for a restart that the coordinator did not command."""
        return self._heartbeats.restart

    def heard(self) -> Heard:
        """Return the peers that were heard in the last two seconds, and how old these signs of life are."""
        return self._heartbeats.heard(time.monotonic())

    def silence(self) -> float:
        """Return the seconds since a peer was heard; 0 for a round of one."""
        return self._heartbeats.silence(time.monotonic())

    def share(self, standing: MemberStanding) -> tuple[MemberStanding, ...] | None:
        """Report whether the workers here make progress; return the same of all other members, at rank 0."""
        self._heartbeats.standing = standing
        return self._heartbeats.others(time.monotonic())

    def leave_out(self, ranks: Sequence[int]) -> None:
        """Hear no more of these members, which have left the round."""
        self._heartbeats.left = frozenset(ranks)

    def cut_off(self, fence_seconds: float) -> bool:
        """Return whether no member of the round has heard from the control plane for this time, or had not before."""
        self._heartbeats.control_plane.own_at = self._contact_at()
        return self._heartbeats.control_plane.cut_off(time.monotonic(), fence_seconds)

    def _run(self) -> None:
        while not self._stop.wait(self._heartbeats.seconds):
            self._heartbeats.control_plane.own_at = self._contact_at()
            with suppress(RuntimeError):  # torch's DistError and its subclasses: the host is away, see silence()
                self._store = self._store or self._connect()
                if self._heartbeats.exchange(self._store, time.monotonic):
                    self._on_restart()


def try_neighbour(where: str) -> str | None:
    """Open and close a connection to host:port; return what went wrong."""
    host, _, port = where.rpartition(":")
    try:
        network.connect(host.strip("[]"), int(port))
    except OSError as error:
        return f"{type(error).__name__}: {error}"[:500]
    return None
