"""From one round to the next: announce a port, wait for a place, open the round's store, hear the peers.

What to do while it waits is decided in `waiting`, what members write to the store in `agreement`.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pytorchjob_agent.contract.messages import Assigned, Heartbeat, Join, Message, RoundId, Shrink, Unreachable
from pytorchjob_agent.rendezvous import agreement, peer_heartbeats, roles, round_store, waiting
from pytorchjob_agent.rendezvous import inbox as commands
from pytorchjob_agent.rendezvous.agreement import Heard, MemberStanding
from pytorchjob_agent.rendezvous.coordinator_client import Client
from pytorchjob_agent.rendezvous.decide import Snapshot, Workers
from pytorchjob_agent.rendezvous.extension import Extensions, OpenRound
from pytorchjob_agent.rendezvous.peer_heartbeats import PeerHeartbeatThread
from pytorchjob_agent.rendezvous.roles import MemberRole, RolePlace
from pytorchjob_agent.rendezvous.session import Session
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.rendezvous.store_calls import StoreCalls
from pytorchjob_agent.rendezvous.waiting import WaitProgress, WaitSnapshot
from pytorchjob_agent.system.console import say

_LINGER_SECONDS = 5.0
_FIRST_PAUSE = 0.002
"""How long a member first waits for the proof that rank 0 writes when it opens the store."""


class NoRoundError(Exception):
    """There is no next round for this agent; `end` is the reason."""

    def __init__(self, end: waiting.End) -> None:
        """Keep the reason."""
        super().__init__(end.stop.message if isinstance(end, waiting.Stopped) else end.reason)
        self.end = end


class PeerError(Exception):
    """The store of the round could not be reached; the message names it and the reason."""


def _part(store: Any, assigned: Assigned) -> Any:
    return round_store.beside(store, f"pytorchjob/{assigned.round}")


def _warn(key: str) -> None:
    say(f"warning: {key} in the round's store is ignored: no member of this round wrote it (see docs/security.md)")


class Membership:
    """This agent's place in the job, round by round."""

    def __init__(self, client: Client, address: str, timeout: float) -> None:
        """Start without a round; without the coordinator, the first attempt ends after `timeout` seconds."""
        self.client = client
        self._address, self._timeout = address, timeout
        self.assigned: Assigned | None = None
        self._done_in: RoundId | None = None
        """The last round whose end the coordinator knows from this agent."""
        self.heartbeats: PeerHeartbeatThread | None = None
        self.store: Any = None
        """The part of the round's store that workers do not use; None: it cannot be reached."""
        self._peers: SignedStore | None = None
        """The same part, for what members write for each other."""
        self._calls = StoreCalls()
        self._raw: Any = None
        self._server: Any = None
        self._old: Any = None
        self._listener: socket.socket | None = None
        self.extensions = Extensions()
        """What this member can do besides."""
        self.fence_seconds = 0.0
        """After this time without contact of any member to the control plane, the workers end. 0: never."""
        self.on_restart: Callable[[], None] = lambda: None
        self.leaving: Callable[[], bool] = lambda: False
        self.heartbeat: Callable[[], Heartbeat] = self.plain_heartbeat

    def next_round(self, *reports: Message, by_members: bool = False, caused: bool = False) -> Assigned:
        """Wait for the next round and open or join its store; the coordinator receives the reports first.

        `by_members` tries to agree with the other members before. `caused`: the last round ended for another reason
        than a failure. Raises NoRoundError, PeerError and NotStartedError.
        """
        listener = round_store.listen(self._address)
        try:
            self.extensions.prepare()
            join = Join(listener.getsockname()[1], commands.ended(self.client.inbox), caused)
            ended_at = time.monotonic()
            assigned, agreed = self._wait(reports, join, by_members)
            begin = partial(Session.begin, assigned=assigned, agreed=agreed, reports=reports, ended_at=ended_at)
            self._begin(assigned, listener, begin, agreed=agreed)
        except BaseException:
            listener.close()
            raise
        return assigned

    def _wait(self, reports: tuple[Message, ...], join: Join, by_members: bool) -> tuple[Assigned, bool]:
        """Return the place, and whether the members agreed on it."""
        now, port = time.monotonic(), join.port
        offered = by_members and waiting.may_offer(self._known(now, self.client.inbox)) and self._offer(port)
        state = WaitProgress(now, join, offered)
        if not offered:
            self.client.update(lambda session: session.join(reports, join, now=now))
        while True:
            inbox = self.client.wait(lambda known: waiting.is_decided(known) or self.leaving(), waiting.POLL_SECONDS)
            known = self._known(time.monotonic(), inbox)
            step = waiting.next_step(state, known)
            match step:
                case waiting.Begin(assigned):
                    return assigned, False
                case waiting.Agree() if (agreed := self._agree()) is not None:
                    return agreed, True
                case waiting.JoinAgain():
                    self._join_again(reports, step, now)
                case waiting.Offer() if self._offer(port):
                    pass
                case waiting.Stopped() | waiting.Fenced() | waiting.Leaving() | waiting.NotReached() | waiting.Unfit():
                    raise NoRoundError(step)
                case _:
                    step = waiting.keep_waiting(state, known)
                    if step.report:
                        say(f"waiting for a round: {step.report}")
            state = waiting.taken(state, step, known.now)

    def _known(self, now: float, inbox: commands.Inbox) -> WaitSnapshot:
        return WaitSnapshot(
            now=now,
            inbox=inbox,
            away=self.client.away(),
            absent=self.client.absent(),
            round=None if self.assigned is None else self.assigned.round,
            has_store=self.store is not None,
            leaving=self.leaving(),
            cut_off=self.cut_off(),
            timeout=self._timeout,
        )

    def _join_again(self, reports: tuple[Message, ...], step: waiting.JoinAgain, since: float) -> None:
        """Join with the reports that were made at this time."""
        if step.skip:
            self.client.update(lambda session: session.skip())
        self.client.update(lambda session: session.join(reports, step.join, now=since))

    def _offer(self, port: int) -> bool:
        """Offer the other members to continue without the coordinator; False unless the last round's store has it."""
        peers, address, restarts = self._peers, self._address, self.client.restarts
        assert peers is not None

        def offer() -> bool:
            agreement.offer(peers, address, port, restarts)
            return True

        try:
            return bool(self._calls.ask("offer", offer))
        except RuntimeError:
            return False

    def _agree(self) -> Assigned | None:
        peers = self._peers
        assert peers is not None
        try:
            return self._calls.ask("agree", lambda: agreement.agree(peers))
        except (RuntimeError, ValueError):
            return None

    def _begin(
        self, assigned: Assigned, listener: socket.socket, begin: Callable[[Session], None], *, agreed: bool
    ) -> None:
        if self.heartbeats is not None:
            self.heartbeats.stop()
            self.heartbeats = None
        self.client.update(begin)
        self.assigned = assigned
        self._calls.forget()
        try:
            self._open(assigned, listener, keep_old=agreed)
        except RuntimeError as error:
            where = f"{assigned.master_address}:{assigned.master_port}"
            self.client.send(Unreachable(assigned.round, where, str(error)[:500]))
            self.store = self._peers = None
            raise PeerError(f"rank 0's store {where} does not answer: {error}") from error
        connect = partial(self._second_connection, assigned)
        self.heartbeats = PeerHeartbeatThread(assigned, connect, self.client.contact_at, self.on_restart)
        self.heartbeats.start()
        if assigned.neighbour:
            threading.Thread(target=self._try_neighbour, args=(assigned,), name="neighbour", daemon=True).start()
        self._open_extensions(assigned)

    def _open_extensions(self, assigned: Assigned) -> None:
        """Let the extensions do what has to be done before workers start.

        Raises NotStartedError and PeerError.
        """

        def connect() -> SignedStore:
            return self._second_connection(assigned)

        def goes_on() -> bool:
            return not (commands.superseded(self.client.inbox, assigned.round) or self.leaving())

        assert self._peers is not None
        try:
            self.extensions.open(OpenRound(assigned, self._peers, connect, goes_on))
        except RuntimeError as error:
            raise PeerError(f"the store of round {assigned.round} does not answer: {error}") from error

    def _open(self, assigned: Assigned, listener: socket.socket, *, keep_old: bool) -> None:
        """Open the round's store as rank 0, or connect to it; the port stays open for a neighbour's attempt."""
        self._old = self._server if keep_old else None  # the others may still have to read the agreement
        if self._listener is not None:
            self._listener.close()
        self._listener, self._server = listener, None
        if assigned.rank == 0:
            self._raw = self._server = round_store.serve(listener)
        else:
            connect = partial(round_store.connect, assigned.master_address, assigned.master_port)
            self._raw = self._calls.wait(connect, lambda: commands.superseded(self.client.inbox, assigned.round))
        self.store = _part(self._raw, assigned)
        self._peers = SignedStore(self.store, assigned, _warn)
        if assigned.rank == 0:
            agreement.prepare(self._peers)
        else:
            self._await_prepared(self._peers)

    def _await_prepared(self, peers: SignedStore) -> None:
        """Wait until rank 0 proves that its store is this round's; raises RuntimeError if it does not in time."""
        deadline, pause = time.monotonic() + round_store.CONNECT_SECONDS, _FIRST_PAUSE
        while not agreement.is_prepared(peers):
            if commands.superseded(self.client.inbox, peers.assigned.round):
                raise RuntimeError(f"round {peers.assigned.round} has ended before its store was open")
            if time.monotonic() > deadline:
                raise RuntimeError(f"it does not serve round {peers.assigned.round}")
            time.sleep(pause)
            pause = min(2 * pause, waiting.POLL_SECONDS)

    def role_place(self, member: MemberRole) -> RolePlace:
        """Return where this member's workers stand among those of its role; without the others' roles, among all."""
        assigned, peers, deadline = self.assigned, self._peers, time.monotonic() + roles.WAIT_SECONDS
        assert assigned is not None
        with suppress(RuntimeError):
            if peers is not None:
                roles.write(peers, member)
            while peers is not None and member.role != roles.DEFAULT and time.monotonic() < deadline:
                if (members := roles.read(peers)) is not None:
                    return roles.place(members, assigned.rank)
                if commands.superseded(self.client.inbox, assigned.round):
                    break
                time.sleep(_FIRST_PAUSE)
        if member.role != roles.DEFAULT:
            say(f"warning: not all members reported a role: ROLE_RANK and ROLE_WORLD_SIZE of {member.role} count all")
        return roles.without_roles(assigned)

    def _second_connection(self, assigned: Assigned) -> SignedStore:
        """Return a store connection for a thread of its own."""
        raw = round_store.connect(assigned.master_address, assigned.master_port)
        return SignedStore(_part(raw, assigned), assigned, _warn)

    def _try_neighbour(self, assigned: Assigned) -> None:
        error = peer_heartbeats.try_neighbour(assigned.neighbour)
        if error is not None and self.assigned is assigned:
            say(f"warning: the peer at {assigned.neighbour} cannot be reached: {error}")
            self.client.send(Unreachable(assigned.round, assigned.neighbour, error))

    def share(self, standing: MemberStanding) -> tuple[MemberStanding, ...] | None:
        """Report whether the workers here make progress; return the same of all other members, None: unknown."""
        return None if self.heartbeats is None else self.heartbeats.share(standing)

    def shrink(self, shrink: Shrink) -> None:
        """Take note of members that have left the round, and let the extensions tell the workers."""
        assert self.assigned is not None
        if self.heartbeats is not None:
            self.heartbeats.leave_out(shrink.members)
        gone = frozenset(shrink.ranks)
        ranks = [rank for rank in range(self.assigned.world_size) if rank not in gone]
        self.extensions.shrink(shrink, ranks)

    def plain_heartbeat(self) -> Heartbeat:
        """Return the heartbeat of an agent that knows nothing of its workers."""
        heard = self.heard()
        problem = self.extensions.problem
        return Heartbeat(heard=heard.ranks, heard_ages=heard.ages, heard_in=heard.round, checkpoint_problem=problem)

    def heard(self) -> Heard:
        """Return the peers of this round that were heard lately."""
        return self.heartbeats.heard() if self.heartbeats is not None else Heard()

    def snapshot(self, workers: Workers, *, reported_done: bool) -> Snapshot:
        """Return what this member knows now; `reported_done`: `done` has returned true. The pod's end is not in it."""
        peers, inbox, away = self.heartbeats, self.client.inbox, self.client.away()
        return Snapshot(
            now=time.monotonic(),
            workers=workers,
            inbox=inbox,
            away=away,
            absent=self.client.absent(),
            silence=peers.silence() if peers is not None else 0.0,
            peers_restart=peers.restart if peers is not None else None,
            all_done=reported_done and away > 0.0 and self.all_done(),
            cut_off=self.cut_off(),
            fenced=inbox.refused is not None and inbox.refused.fenced,
        )

    def cut_off(self) -> bool:
        """Return whether the round may have been replaced: no member heard from the control plane for fenceSeconds."""
        if not self.fence_seconds:
            return False
        if self.heartbeats is not None:
            return self.heartbeats.cut_off(self.fence_seconds)
        return time.monotonic() - self.client.contact_at() >= self.fence_seconds

    def done(self, age: float = 0.0) -> bool:
        """Report to the coordinator, once, and to the other members that the workers here are done, since `age` s.

        False if the round's store could not be written: call again. Without a coordinator the others wait for it.
        """
        if (assigned := self.assigned) is None:
            return True
        if self._done_in != assigned.round:
            self._done_in = assigned.round
            now = time.monotonic()
            self.client.update(lambda session: session.finish(assigned.round, age, now=now))
        if self._peers is None:
            return False
        try:
            agreement.done(self._peers)
        except RuntimeError:
            return False
        return True

    def all_done(self) -> bool:
        """Return whether the workers of all members are done, as far as the store answers."""
        if (peers := self._peers) is None:
            return False
        try:
            return bool(self._calls.ask("done", lambda: agreement.all_done(peers)))
        except RuntimeError:
            return False

    def ask_for_restart(self, reason: str) -> None:
        """Ask the other members for a restart, through the store."""
        with suppress(RuntimeError):
            if self._peers is not None:
                agreement.ask_for_restart(self._peers, reason)

    def linger(self) -> None:
        """Without a coordinator, keep the store open until the others have read in it that all are done."""
        peers, deadline = self._peers, time.monotonic() + _LINGER_SECONDS
        if peers is None or self.client.away() == 0.0:
            return
        with suppress(RuntimeError):
            agreement.leave(peers)
            while peers.assigned.rank == 0 and time.monotonic() < deadline:
                if agreement.all_left(peers):
                    return
                time.sleep(waiting.POLL_SECONDS)

    def close(self) -> None:
        """Close the connections, the store and the port."""
        self.extensions.close()
        if self.heartbeats is not None:
            self.heartbeats.stop()
        self.client.close()
        self._server = self._old = self._raw = self.store = self._peers = None
        if self._listener is not None:
            self._listener.close()
