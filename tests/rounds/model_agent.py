"""A model of an agent and its workers: obeys the orders of its round or of a later one, in its own time.

Without the coordinator the members of a round agree on the next one by themselves, once all of them have offered.
"""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytorchjob_agent.contract.messages import (
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    Assigned,
    Checkpoint,
    Done,
    Draining,
    Failed,
    Finished,
    Heartbeat,
    Hello,
    Hold,
    Join,
    Refused,
    Restart,
    Resumed,
    RoundId,
    Stop,
    Welcome,
)

if TYPE_CHECKING:
    from tests.rounds.simulated import Link, World

_INCARNATIONS = itertools.count(1)
AWAY_SECONDS = 1.5
REAL, ECHO = "ValueError: bad batch", "RuntimeError: Connection closed by peer"


class Agent:
    """One agent, from its start to its end."""

    def __init__(self, world: "World", index: int, uid: str, nproc: int) -> None:
        self.world, self.index, self.uid, self.nproc = world, index, uid, nproc
        self.incarnation = f"{uid}/{next(_INCARNATIONS)}"
        self.port = 20_000 + next(_INCARNATIONS) % 10_000
        self.link: Link | None = None
        self.welcome = False
        self.away_since = self.heard = self.peers_heard = world.clock.now
        self.assigned: Assigned | None = None
        self.running = self.done = self.offered = False
        self.joining = True
        self.over: RoundId | None = None
        """The round of the last order to stop."""
        self.failed: Failed | None = None
        self.resumed: Resumed | None = None
        self.dead = self.deleted = self.cut_off = self.alone = self.draining = False
        self.cooperative = world.clock.random.random() < 0.5
        self.answered = self.step = 0
        self.asleep = 0.0
        self.code: int | None = None
        self.told = ""
        """What it was told last: why it waits, or why it ended."""
        world.clock.soon(0.0, 0.5, self._connect)
        world.clock.soon(0.0, HEARTBEAT_SECONDS, self._beat)

    @property
    def round(self) -> RoundId | None:
        return None if self.assigned is None else self.assigned.round

    @property
    def busy(self) -> bool:
        """Whether it has workers, or had them until they ended well."""
        return self.running or self.done

    # Its connection.

    def _connect(self) -> None:
        if self.dead or self.link is not None or self._later(self._connect):
            return
        self.link = self.world.connect(self)
        if self.link is None:
            self._soon(0.2, 1.0, self._connect)
            return
        self.welcome, self.heard = False, self.world.clock.now
        self.link.say(self._hello())

    def _hello(self) -> Hello:
        known = self.assigned if self.busy else None
        return Hello(
            job="job",
            pod=f"job-{self.index}",
            token="token",
            index=self.index,
            address=f"10.0.0.{self.index}",
            nproc=self.nproc,
            incarnation=self.incarnation,
            pod_uid=self.uid,
            round=known.round if known else None,
            rank=known.rank if known else 0,
            size=known.size if known else 0,
            restarts=known.restarts if known else 0,
            done=self.done,
        )

    def lose(self, link: "Link") -> None:
        """The connection has ended."""
        if link is not self.link or self.dead or self._later(lambda: self.lose(link)):
            return
        self.link, self.welcome, self.away_since = None, False, self.world.clock.now
        self._soon(0.05, 1.0, self._connect)

    def away(self) -> float:
        return 0.0 if self.welcome else self.world.clock.now - self.away_since

    def _say(self, message: Any) -> None:
        if self.link is not None and self.welcome:
            self.link.say(message)

    def _beat(self) -> None:
        if self.dead or self._later(self._beat):
            return
        self._soon(HEARTBEAT_SECONDS, HEARTBEAT_SECONDS, self._beat)
        if self.running:
            self.step += 1
        step = self.step if self.running else None
        heard = self.world.notes.heard(self)
        self._say(
            Heartbeat(step=step, heard=heard, cooperative=self.cooperative and self.running, answered=self.answered)
        )
        link = self.link
        if link is not None and self.world.clock.now - self.heard > LEASE_SECONDS:
            link.end_of_agent()
            self.lose(link)
        if heard:
            self.peers_heard = self.world.clock.now
        if self._hears_nobody():
            self.stop_workers()
        self._look_for_members()
        if self.draining and self.away() > AWAY_SECONDS:
            self.die(143)

    # Orders.

    def hear(self, link: "Link", message: Any) -> None:
        if self.dead or link is not self.link or self._later(lambda: self.hear(link, message)):
            return
        self.heard = self.world.clock.now
        match message:
            case Welcome():
                self.welcome = True
                self._say_standing()
            case Refused():
                self._refused(message)
            case Assigned(round=id_) if self.round is None or id_ > self.round:
                if self.busy and self.resumed is not None:  # the leader has not heard yet that the members agreed
                    self.stop_workers()
                self._begin(message)
            case Restart(round=id_) if self.round is None or id_ >= self.round:
                self.told, self.over = message.reason, id_
                self.stop_workers() if self.busy else self._say_standing()
            case Checkpoint(round=id_) if self.cooperative and id_ == self.round:
                self._soon(0.0, 5.0, lambda: self._answer(id_, message.number))
            case Hold():
                self.told = message.reason
            case Stop():
                self.told = message.message
                self.die(message.exit_code)
            case Finished(round=id_) if id_ == self.round:
                self.told = "finished"
                self.die(0)

    def _refused(self, message: Refused) -> None:
        self.told = message.message
        if message.fenced or not message.again:
            self.die(202)

    def _say_standing(self) -> None:
        ended = max((one for one in (self.round, self.over) if one is not None), default=None)
        for message in (self.resumed, self.failed, Join(self.port, ended) if self.joining else None):
            if message is not None:
                self._say(message)
        if self.done and self.assigned is not None:
            self._say(Done(self.assigned.round))
        if self.draining:
            self._say(Draining(10.0))

    def _answer(self, id_: RoundId, number: int) -> None:
        if self.round == id_ and self.running:
            self.answered = number

    # Workers.

    def _begin(self, assigned: Assigned, resumed: Resumed | None = None) -> None:
        self.world.notes.began(self, assigned)
        self.assigned, self.resumed, self.failed, self.peers_heard = assigned, resumed, None, self.world.clock.now
        self.running, self.done, self.joining, self.offered = True, False, False, False

    def fail(self, message: str) -> None:
        """A worker fails; the others' do not live for long then."""
        if not self.running or self.dead or self.assigned is None:
            return
        self.world.notes.failed(self, message)
        self.failed = Failed(self.assigned.round, self.assigned.first_rank, 0, 1, message)
        self.offered = self.away() > AWAY_SECONDS
        self.stop_workers()

    def finish(self) -> None:
        """The workers end well."""
        if self.running and not self.dead and self.assigned is not None:
            self.running, self.done = False, True
            self._say(Done(self.assigned.round))

    def stop_workers(self) -> None:
        """Kill what is left of them, which takes a moment, and join anew."""
        self.running = self.done = False
        self.world.notes.stopped(self)
        id_ = self.round
        self._soon(0.0, 1.0, lambda: self._join(id_))

    def _join(self, id_: RoundId | None) -> None:
        if self.dead or self.busy or self.round != id_ or self.joining or self._later(lambda: self._join(id_)):
            return
        self.joining = True
        self.told = ""
        if self.welcome:
            self._say_standing()

    # Without the coordinator.

    def _hears_nobody(self) -> bool:
        """Whether those who can still talk to each other go on without this one by now."""
        silence = self.world.clock.now - self.peers_heard
        apart = self.assigned is not None and self.assigned.size > 1
        return self.busy and apart and min(self.away(), silence) >= LEASE_SECONDS

    def _look_for_members(self) -> None:
        """Offer to go on without it, or follow an offer; agree once all have offered."""
        if self.assigned is None or self.away() <= AWAY_SECONDS or self.alone:
            return
        members = self.world.notes.members(self.assigned.round)
        wanted = any(one.offered and one.round == self.round for one in members)
        if self.running and wanted:
            self.offered = True
            self.stop_workers()
        elif not self.busy and self.joining:
            self.offered = True
        if self.offered and self.world.notes.can_agree(self):
            self.world.notes.real.add(self.assigned.round)  # they take every restart of their own for a failure's
            for one in members:
                one._soon(0.0, 2.0, one.go_on(self.assigned.round))

    def go_on(self, id_: RoundId) -> Callable[[], None]:
        """Begin the round that the members agreed on, unless another has begun meanwhile."""

        def begin() -> None:
            old = self.assigned
            if self.dead or self.busy or old is None or old.round != id_ or not self.offered or self._later(begin):
                return
            next_ = RoundId(id_.term, id_.number, id_.attempt + 1)
            if self.over is not None and self.over >= next_:
                return
            assigned = Assigned(
                next_,
                old.rank,
                old.size,
                old.first_rank,
                old.world_size,
                old.master_address,
                old.master_port,
                old.restarts + 1,
            )
            self._begin(assigned, Resumed(next_, old.restarts + 1, "a worker failed"))
            self._say_standing()

        return begin

    # Its end, and sleep.

    def die(self, code: int, *, silent: bool = False) -> None:
        """The process ends; `silent`: with its node, so that nobody is told."""
        if self.dead:
            return
        self.dead, self.code = True, code
        if self.link is not None:
            if silent:
                self.link.dumb = True
            else:
                self.link.end_of_agent()
        if self.busy:
            self.world.notes.stopped(self)
        self.running = False
        self.world.ended(self, code)

    def drain(self) -> None:
        """SIGTERM: asked to go."""
        if not self.draining:
            self.draining = True
            self._say(Draining(10.0))
            self.world.clock.after(12.0, lambda: self.die(143))

    def _soon(self, low: float, high: float, do: Callable[[], None]) -> None:
        self.world.clock.soon(low, high, do)

    def _later(self, do: Callable[[], None]) -> bool:
        """Put something off while frozen."""
        if self.world.clock.now >= self.asleep:
            return False
        self.world.clock.after(self.asleep - self.world.clock.now, do)
        return True
