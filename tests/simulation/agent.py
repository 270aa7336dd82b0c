"""One agent: the real session, inbox, decisions and agreement. Only sockets, threads, torch and workers are simulated.

It does what `loop` and `membership` do between these decisions, in the same order.
"""

from typing import TYPE_CHECKING

from pytorchjob_agent.contract.messages import (
    Assigned,
    Failed,
    Heartbeat,
    Hello,
    Join,
    Message,
    ProtocolError,
    RoundId,
    Shrink,
    Stop,
    Unreachable,
)
from pytorchjob_agent.contract.reasons import ExitReason, ShrinkState
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_agent.rendezvous import agreement, failure_messages, waiting
from pytorchjob_agent.rendezvous import inbox as commands
from pytorchjob_agent.rendezvous.agreement import Heard, PeerHeartbeats
from pytorchjob_agent.rendezvous.decide import Snapshot, Step, StepKind, Workers, decide
from pytorchjob_agent.rendezvous.session import Session
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.rendezvous.waiting import WaitProgress, WaitSnapshot

from .clock import Action, Sleeper
from .leader import JOB, TOKENS
from .network import Link
from .store import Client, RoundStore
from .workers import ECHO, ECHO_TYPE, REAL, RoundWorkers

if TYPE_CHECKING:
    from .world import World

AWAY_POLL = 0.25
STORE_SECONDS = 10.0
GRACE_SECONDS = 12.0
FENCE_SECONDS = 20.0
"""spec.agent.fenceSeconds: short, so that a schedule is too."""
LINGER_SECONDS = 5.0


class Agent(Sleeper):
    """One agent, from its start to its end."""

    def __init__(self, world: "World", index: int, uid: str, nproc: int) -> None:
        super().__init__(world.clock)
        self.world, self.index, self.uid, self.nproc = world, index, uid, nproc
        self.random = world.clock.random
        self.number = world.next_number()
        self.address = f"10.0.0.{index}"
        self.ahead = self.random.choice((0.0, 0.0, 500.0))
        self.wall_offset = 0.0
        hello = Hello(
            JOB, f"job-{index}", TOKENS[f"job-{index}"], index, self.address, nproc, f"{uid}/{self.number}", uid
        )
        self.session = Session(hello, self.monotonic())
        self.link: Link | None = None
        self.dead = self.deleted = self.cut_off = self.alone = False
        self.mended = 0
        """How often a way from it to the others was opened again."""
        self.frozen_for_good = False
        self.died = 0.0
        self.heard_to_the_end = False
        """Whether it died while it was connected."""
        self.code: int | None = None
        self.reason = ""
        """Why it ended, or waits."""
        self.cooperative = self.random.random() < 0.5
        self.obeys = self.random.random() < 0.5
        self.survives = world.policy.survive and self.number % 5 != 0
        """Whether its workers can go on without a member."""
        self.shrunk: Shrink | None = None
        self.held = False
        """Whether its workers stand still behind a save."""
        self.assigned: Assigned | None = None
        self.workers: RoundWorkers | None = None
        """None while it has none."""
        self.finished: RoundId | None = None
        """The round in which its workers ended well."""
        self.waiting: WaitProgress | None = None
        self.reports: tuple[Message, ...] = ()
        self.port = 0
        self.store: SignedStore | None = None
        self.store_at: RoundStore | None = None
        """Where `store` is."""
        self.hosted: list[RoundStore] = []
        self.peers: PeerHeartbeats | None = None
        self.leave_by: float | None = None
        self.reported_leaving = self.reported_done = self.stopping = False
        self.answered = 0
        self.asked = False
        self.islanded = False
        """Whether neither the coordinator nor the API server can be reached."""
        self._api_server_at = self.monotonic()
        self._planned = False
        world.clock.soon(0.0, 0.5, self._connect)
        self._next_round((), by_members=False)

    def __repr__(self) -> str:
        return f"agent {self.index} ({self.uid}/{self.number})"

    def log(self, text: str) -> None:
        """Add to the trace."""
        self.world.log(f"agent {self.index}.{self.number}", text)

    @property
    def busy(self) -> bool:
        """Whether it has workers, or had them until they ended well."""
        return self.workers is not None

    # The connection.

    def _connect(self) -> None:
        if self.dead or self.link is not None or self.frozen(self._connect):
            return
        link = self.world.connect(self)
        if link is None:
            self._retry()
            return
        self.link = link
        wall = self._clock.now + 1.7e9 + self.wall_offset
        link.to_leader(self.session.connect(self.monotonic(), wall))
        self._converse(link)

    def _retry(self) -> None:
        self.session.disconnect(self.monotonic())
        self._clock.after(self.session.pause() * (0.5 + self.random.random()), self._connect)
        self._wake()

    def _converse(self, link: Link) -> None:
        """Send what is due, again and again while this connection lasts."""
        if self.link is not link or self.dead or self.frozen(lambda: self._converse(link)):
            return
        if self._flush():
            self._clock.after(max(self.session.wait_seconds(self.monotonic()), 0.001), lambda: self._converse(link))

    def _flush(self) -> bool:
        link, now, session = self.link, self.monotonic(), self.session
        if link is None:
            return False
        try:
            data = session.flush(now, self._heartbeat() if session.heartbeat_due(now) else None)
        except ConnectionError as error:
            self._give_up(link, error)
            return False
        if data:
            for line in data.splitlines() if self.world.details else ():
                self.world.detail(f"agent {self.index}.{self.number}", "sends", line)
            link.to_leader(data)
        return True

    def _give_up(self, link: Link, error: ConnectionError) -> None:
        self.log(f"{error}")
        link.close_by_agent()
        self.disconnected(link)

    def _heartbeat(self) -> Heartbeat:
        workers = self.workers
        running = workers is not None and workers.state is Workers.RUN
        heard = self.peers.heard(self.monotonic()) if self.peers is not None else Heard()
        return Heartbeat(
            step=workers.advance() if workers is not None else None,
            heard=heard.ranks,
            heard_ages=heard.ages,
            heard_in=heard.round,
            shrinks=self._shrinks() if running else ShrinkState.NOT_READY,
            shares_state=self.survives and running and self.world.shares_state,
            entered=workers.entered if running else 0,
            cooperative=self.cooperative and running,
            saves_on_request=self.cooperative and running,
            answered=max(self.answered, workers.saved_for if workers is not None else 0),
        )

    def _shrinks(self) -> ShrinkState:
        if not self.survives:
            return ShrinkState.GROUPS
        awaited = self.shrunk is not None and self.shrunk.awaited
        self.held = awaited and (self.held or self.random.random() < 0.3)
        return ShrinkState.HELD if self.held else ShrinkState.READY

    def receive(self, link: Link, data: bytes) -> None:
        """Read the leader's bytes."""
        if self.dead or link is not self.link or self.frozen(lambda: self.receive(link, data)):
            return
        changed = False
        try:
            for line in self.session.lines(data, self.monotonic()):
                if not line.startswith(b'{"kind":"heartbeat_reply"'):
                    self.world.detail(f"agent {self.index}.{self.number}", "receives", line)
                changed = self.session.receive(line) or changed
        except ProtocolError as error:
            raise AssertionError(f"{self} cannot read what the coordinator sends: {error}") from error
        except ConnectionError as error:
            self._give_up(link, error)
            return
        if self.session.inbox.welcomes and self.session._next_heartbeat is None:
            self._clock.after(0.0, lambda: self._converse(link))
        if changed:
            self._wake()

    def disconnected(self, link: Link) -> None:
        """The connection has ended."""
        if self.dead or link is not self.link or self.frozen(lambda: self.disconnected(link)):
            return
        self.link = None
        self._retry()

    def _update(self) -> None:
        """Send what is new; the client's thread wakes up for it."""
        self._flush()

    # The loop.

    def _wake(self) -> None:
        """Decide again in a moment."""
        if not self._planned and not self.dead:
            self._planned = True
            self._clock.after(0.001 + 0.01 * self.random.random(), self._decide)

    def _decide(self) -> None:
        if self.dead or self.frozen(self._decide):
            return
        self._planned = False
        if self.stopping:
            return
        if self.session.inbox.terminating:
            self.drain()
        if self.waiting is not None:
            self._wait()
        elif self.workers is not None:
            self._act(decide(self._snapshot()))
        if self.session.away(self.monotonic()) > 0.0 and not self._planned and not self.dead:
            self._planned = True
            self._clock.after(AWAY_POLL, self._decide)

    def _snapshot(self) -> Snapshot:
        now, inbox, workers = self.monotonic(), self.session.inbox, self.workers
        assert workers is not None
        self._report_progress(workers)
        return Snapshot(
            now=now,
            workers=workers.state,
            inbox=inbox,
            away=self.session.away(now),
            absent=self.session.absent(now),
            silence=self.peers.silence(now) if self.peers is not None else 0.0,
            peers_restart=self.peers.restart if self.peers is not None else None,
            all_done=self._all_done(),
            leave_by=self.leave_by,
            reported_leaving=self.reported_leaving,
            shrunk=self.shrunk,
            cut_off=self._cut_off(),
            fenced=inbox.refused is not None and inbox.refused.fenced,
        )

    def _report_progress(self, workers: RoundWorkers) -> None:
        request = self.session.inbox.save_request
        if request is not None and not self.asked and workers.state is Workers.RUN:
            self.asked = True
            workers.save(self.cooperative, self.obeys)
        save = self.session.inbox.save_and_continue
        if save is not None and workers.state is Workers.RUN:
            assert self.cooperative, f"{self} is asked to save, and has not reported that it does"
            workers.save_for(save)
        answered = workers.saved and request is not None
        if answered and request is not None and request.number > self.answered:
            self.answered = request.number
            self.session.send(self._heartbeat())
            self._update()

    def _all_done(self) -> bool:
        if not self.reported_done or self.session.away(self.monotonic()) == 0.0:
            return False
        assert self.assigned is not None
        try:
            return self.store is not None and agreement.all_done(self.store)
        except RuntimeError:
            return False

    def _act(self, step: Step) -> None:
        match step.kind:
            case StepKind.REPORT_FAILURE:
                self._fail(step)
            case StepKind.REGROUP:
                self._regroup(step)
            case StepKind.SHRINK:
                self._shrink()
            case StepKind.REPORT_DONE:
                self._done()
            case StepKind.REPORT_LEAVING:
                self.reported_leaving = True
                self.session.send(self._heartbeat())
                self.session.leave(GRACE_SECONDS - 2.0, "SIGTERM")
                self._update()
            case StepKind.LEAVE:
                self.die(143, step.reason)
            case StepKind.STOP:
                self._stopped(step.stop or Stop(ExitCode.FENCED, ExitReason.FENCED, step.reason))
            case StepKind.FINISH:
                self._linger(step.reason)
            case StepKind.WAIT:
                pass

    def _shrink(self) -> None:
        shrink = self.session.inbox.shrink
        assert shrink is not None
        assert self.workers is not None
        self.log(f"goes on without {shrink.members}: {shrink.reason[:80]}")
        before, self.shrunk = self.shrunk, shrink
        if before is not None and before.number == shrink.number:
            return  # only whether the others wait is new
        if self.peers is not None:
            self.peers.left = frozenset(shrink.members)
        if self.workers.state is Workers.RUN:
            self.workers.shrink(shrink.number, frozenset(shrink.members))
        self._wake()

    def _fail(self, step: Step) -> None:
        assert self.workers is not None
        assert self.assigned is not None
        self.session.send(self._heartbeat())
        hang = self.workers.state is Workers.HANG
        text = self.workers.error
        report = TerminationMessage(
            ExitReason.WORKER_HANGS if hang else ExitReason.WORKER_FAILED,
            ExitCode.WORKER_FAILED,
            rank=self.assigned.first_rank,
            local_rank=0,
            message=text,
            traceback=f"Traceback\n{text}\x1b" * 30,
            errors=(ECHO_TYPE if text == ECHO else "ValueError",),
        )
        failed = failure_messages.message(self.assigned, report)
        self.log(f"workers {'hang' if hang else 'failed'}: {text[:60]}")
        if hang:
            self.session.send(failed)
        self._update()
        self._kill(lambda: self._after_failure(failed, step), 1.0 if hang else 0.0)

    def _after_failure(self, failed: Failed, step: Step) -> None:
        if step.by_members:
            self._ask_for_restart(failed.message)
        self._next_round((failed,), by_members=step.by_members)

    def _regroup(self, step: Step) -> None:
        self.log(f"stops its workers: {step.reason[:100]}")
        if step.by_members:
            self._ask_for_restart(step.reason)
        self._kill(lambda: self._next_round((), by_members=step.by_members, caused=step.caused))

    def _ask_for_restart(self, reason: str) -> None:
        try:
            if self.store is not None:
                agreement.ask_for_restart(self.store, reason)
        except RuntimeError:
            pass

    def _kill(self, then: Action, least: float = 0.0) -> None:
        """Stop the workers, which takes a moment."""
        self.stopping = True

        def killed() -> None:
            if self.dead or self.frozen(killed):
                return
            self.stopping = False
            self._workers_gone()
            then()

        self._clock.soon(least, least + 0.5, killed)

    def _workers_gone(self) -> None:
        workers, self.workers = self.workers, None
        if workers is not None:
            workers.end()

    def _done(self) -> None:
        if self.reported_done or self.assigned is None:
            return
        self.reported_done = True
        self.log("is done")
        try:
            if self.store is not None:
                agreement.done(self.store)
        except RuntimeError:
            pass
        self.session.finish(self.assigned.round, now=self.monotonic())
        self._update()

    def _linger(self, reason: str) -> None:
        """Keep the store open until the others have read that all are done."""
        if self.session.away(self.monotonic()) == 0.0 or self.assigned is None or self.store is None:
            self.die(0, reason)
            return
        self.stopping = True
        try:
            agreement.leave(self.store)
        except RuntimeError:
            self.die(0, reason)
            return
        self._clock.after(LINGER_SECONDS if self.assigned.rank == 0 else 0.0, lambda: self.die(0, reason))

    def _stopped(self, stop: Stop) -> None:
        self.die(143 if stop.exit_code == ExitCode.DRAINED else stop.exit_code, stop.message)

    # From one round to the next.

    def _next_round(self, reports: tuple[Message, ...], *, by_members: bool, caused: bool = False) -> None:
        self.reports, self.port = reports, self.world.listen(self)
        self.answered, self.asked, self.reported_done, self.shrunk, self.held = 0, False, False, None, False
        now, inbox = self.monotonic(), self.session.inbox
        join = Join(self.port, commands.ended(inbox), caused)
        offered = by_members and waiting.may_offer(self._known()) and self._offer()
        self.waiting = WaitProgress(now, join, offered)
        if not offered:
            self.session.join(reports, join, now=self.monotonic())
            self._update()
        self._wake()

    def _known(self) -> WaitSnapshot:
        now = self.monotonic()
        return WaitSnapshot(
            now=now,
            inbox=self.session.inbox,
            away=self.session.away(now),
            absent=self.session.absent(now),
            round=None if self.assigned is None else self.assigned.round,
            has_store=self.store is not None,
            leaving=self.leave_by is not None,
            cut_off=self._cut_off(),
            timeout=600.0,
        )

    def _contact_at(self) -> float:
        """Return when it last heard from the control plane; it tries the API server now and then."""
        now = self.monotonic()
        if not self.islanded:
            self._api_server_at = now
        return max(self.session.heard_at, self._api_server_at)

    def _cut_off(self) -> bool:
        contact = self._contact_at()
        if self.peers is not None:
            self.peers.control_plane.own_at = contact
            return self.peers.control_plane.cut_off(self.monotonic(), FENCE_SECONDS)
        return self.monotonic() - contact >= FENCE_SECONDS

    def _wait(self) -> None:
        assert self.waiting is not None
        known = self._known()
        step = waiting.next_step(self.waiting, known)
        match step:
            case waiting.Begin(assigned):
                self._begin(assigned, agreed=False)
                return
            case waiting.Agree() if (agreed := self._agree()) is not None:
                self._begin(agreed, agreed=True)
                return
            case waiting.JoinAgain():
                if step.skip:
                    self.session.skip()
                self.session.join(self.reports, step.join, now=self.monotonic())
                self._update()
            case waiting.Offer() if self._offer():
                pass
            case waiting.Stopped() | waiting.Fenced() | waiting.Leaving() | waiting.NotReached():
                self._without_round(step)
                return
            case _:
                step = waiting.keep_waiting(self.waiting, known)
        self.waiting = waiting.taken(self.waiting, step, known.now)
        self.reason = known.inbox.hold or (known.inbox.refused.message if known.inbox.refused else self.reason)
        if not isinstance(step, waiting.KeepWaiting):
            self._wake()
        elif self.waiting.offered and not self._planned:
            self._planned = True
            self._clock.after(AWAY_POLL, self._decide)

    def _without_round(self, end: waiting.End) -> None:
        match end:
            case waiting.Stopped(stop):
                self._stopped(stop)
            case waiting.Leaving(reason):
                self.die(143, reason)
            case waiting.Fenced(reason):
                self.die(int(ExitCode.FENCED), reason)
            case waiting.NotReached(reason):
                self.die(int(ExitCode.RENDEZVOUS), reason)

    def _offer(self) -> bool:
        assert self.assigned is not None
        assert self.store is not None
        try:
            agreement.offer(self.store, self.address, self.port, self.session.restarts)
        except RuntimeError:
            return False
        self.world.checks.offered(self.assigned)
        return True

    def _agree(self) -> Assigned | None:
        assert self.store is not None
        try:
            return agreement.agree(self.store)
        except (RuntimeError, ValueError):
            return None

    def _begin(self, assigned: Assigned, *, agreed: bool) -> None:
        self.log(f"begins round {assigned.round} as rank {assigned.rank} of {assigned.size}{' (agreed)' * agreed}")
        self.world.checks.begins(self, assigned, agreed)
        self.peers = None
        self.session.begin(assigned, agreed=agreed)
        self._update()
        self.assigned, self.waiting, self.stopping = assigned, None, True
        for store in self.hosted[: None if not agreed else -1]:
            store.closed = True
        self.hosted = self.hosted[-1:] if agreed else []
        if assigned.rank == 0:
            made = self.world.serve(self, assigned.round)
            self.hosted.append(made)
            agreement.prepare(SignedStore(Client(made, self, assigned.round), assigned))
        self._open(assigned, self._clock.now + STORE_SECONDS)

    def _open(self, assigned: Assigned, deadline: float) -> None:
        """Connect to the round's store; its host may be late."""
        if self.dead or self.frozen(lambda: self._open(assigned, deadline)):
            return
        where = (assigned.master_address, assigned.master_port)
        found = self.world.stores.get(where)
        try:
            if found is None and where in self.world.listeners and self._clock.now < deadline:
                self._clock.after(0.1, lambda: self._open(assigned, deadline))
                return
            if found is None:
                raise RuntimeError("DistNetworkError: connection refused")
            store = SignedStore(Client(found, self, assigned.round), assigned)
            if not agreement.is_prepared(store):
                if commands.superseded(self.session.inbox, assigned.round):
                    raise RuntimeError("the round has ended before its store was open")
                if self._clock.now >= deadline:
                    raise RuntimeError("it does not serve this round")
                self._clock.after(0.1, lambda: self._open(assigned, deadline))
                return
        except RuntimeError as error:
            self._not_open(assigned, error)
            return
        self.stopping, self.store, self.store_at = False, store, found
        self.peers = PeerHeartbeats(assigned, self.monotonic())
        self._clock.soon(0.0, self.peers.seconds, lambda: self._exchange(assigned))
        self.workers = RoundWorkers(self, assigned)
        self.world.checks.started(self, assigned)
        self._wake()

    def _not_open(self, assigned: Assigned, error: RuntimeError) -> None:
        where = f"{assigned.master_address}:{assigned.master_port}"
        self.log(f"rank 0's store {where} does not answer: {error}")
        self.session.send(Unreachable(assigned.round, where, str(error)[:500]))
        self.store, self.stopping = None, False
        failed = Failed(assigned.round, assigned.first_rank, 0, ExitCode.RENDEZVOUS, f"store {where}: {error}")
        self.world.checks.real.add(assigned.round)
        self._next_round((failed,), by_members=False)

    def _exchange(self, assigned: Assigned) -> None:
        """Exchange heartbeats with the peers."""
        if self.dead or self.assigned is not assigned or self.peers is None:
            return
        if self.frozen(lambda: self._exchange(assigned)):
            return
        assert self.store is not None
        self._clock.after(self.peers.seconds, lambda: self._exchange(assigned))
        self.peers.control_plane.own_at = self._contact_at()
        try:
            if self.peers.exchange(self.store, self.monotonic):
                self._wake()
        except RuntimeError:
            self._wake()

    # What happens to it.

    def report(self) -> None:
        """Let the coordinator hear the next heartbeat at once."""
        self.session.send(self._heartbeat())
        self._update()

    def workers_changed(self) -> None:
        """A worker has ended, or hangs, or has saved."""
        self._wake()

    def fail(self, text: str = REAL) -> None:
        """A worker fails of itself."""
        if self.workers is not None and not self.dead:
            self.workers.fail(text)

    def lose(self) -> None:
        """Its workers notice that one of another member has gone."""
        if self.workers is not None and not self.dead:
            self.workers.lose()

    def drain(self) -> None:
        """SIGTERM: the pod is asked to go."""
        if self.leave_by is None and not self.dead:
            self.log("is asked to go")
            self.leave_by = self.monotonic() + GRACE_SECONDS - 2.0
            self._wake()
            self._clock.after(GRACE_SECONDS, lambda: self.die(137, "the grace period is over"))
            self._clock.after(GRACE_SECONDS - 1.9, self._wake)

    def jump(self, seconds: float) -> None:
        """Its monotonic clock jumps forward: to itself it was frozen until now."""
        self.ahead += seconds
        self.asleep = max(self.asleep, self._clock.now)
        self._wake()
        if self.link is not None:
            self._converse(self.link)

    def die(self, code: int, reason: str, *, silent: bool = False) -> None:
        """The process ends; `silent`: with its node, so that no peer is notified."""
        if self.dead:
            return
        self.log(f"ends with {code}: {reason[:100]}")
        self.dead, self.code, self.reason = True, code, reason
        self.heard_to_the_end = self.link is not None and not (self.link.silent or self.link.broken)
        if self.link is not None:
            if silent:
                self.link.silent = True
            else:
                self.link.close_by_agent()
        self.died = self._clock.now
        self._workers_gone()
        if not silent:
            self.world.ended(self, code)
