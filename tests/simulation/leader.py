"""The operator's leader: the real server without its socket, its real jobs, a clock that may jump."""

import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.authentication import KeyedTokens
from pytorchjob_operator.coordinator.jobs import Jobs
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.coordinator.server import Server
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.ledger import Ledger, begin, book
from pytorchjob_operator.rounds.state import JobState, JobSynced

from .clock import Sleeper
from .network import Link

if TYPE_CHECKING:
    from .world import World

KEY = b"k" * tokens.KEY_BYTES
JOB = "job-uid"
TOKENS = {f"job-{index}": tokens.token(KEY, JOB, f"job-{index}") for index in range(8)}
TICK = 0.25
ONCE = (b'{"kind":"hello"', b'{"kind":"join"')
"""Messages that nothing but TCP itself could repeat on one connection; on the next one they are repeated."""


class Leader(Sleeper):
    """One process that leads."""

    def __init__(self, world: "World", term: int) -> None:
        super().__init__(world.clock)
        self.world, self.term = world, term
        self.dead = False
        self.books_since = 0.0
        """When it first booked the job's time."""
        self.links: dict[int, Link] = {}
        self.jobs = Jobs(term, self.monotonic, self._changed, Limits())
        secrets = count()
        self.jobs.draw_secret = lambda: f"secret {world.leader_number}.{next(secrets)}"
        self.server = Server(KeyedTokens(KEY), self.jobs, self.monotonic)
        self._tick()

    @property
    def ledger(self) -> Ledger | None:
        """What it has booked of the job's time."""
        return self.jobs.ledger(JOB)

    @property
    def state(self) -> JobState | None:
        """What it knows of the job."""
        return self.jobs.state(JOB)

    def receive(self, link: Link, data: bytes) -> None:
        """Read lines of an agent."""
        if self.dead or not link.peer.open or self.frozen(lambda: self.receive(link, data)):
            return
        peer: Any = link.peer
        self.links[link.number] = link
        for line in data.splitlines(keepends=True):
            if link.peer.open:
                self.server.line_received(peer, line)
                if link.twice and link.clock.random.random() < link.twice and not line.startswith(ONCE):
                    self.server.line_received(peer, line)
        self.world.checks.decided(self)

    def closed(self, link: Link) -> None:
        """A connection has ended."""
        if self.dead or self.frozen(lambda: self.closed(link)):
            return
        link.peer.open = False
        peer: Any = link.peer
        if self.links.pop(link.number, None) is not None:
            self.server.left(peer)
            self.world.checks.decided(self)

    def hung_up(self, link: Link) -> None:
        """It has closed a connection itself; the transport reports that like any other end."""
        self._clock.after(0.0, lambda: self.closed(link))

    def _tick(self) -> None:
        if self.dead:
            return
        if not self.frozen(self._tick):
            self.jobs.tick()
            self.world.checks.decided(self)
            self._clock.after(TICK, self._tick)

    def sync(self) -> None:
        """The operator passes on what the job is now, or that it has ended."""
        if self.dead or self.frozen(self.sync):
            return
        world = self.world
        if world.outcome is not None:
            self.jobs.finish_job(JOB, failed=world.outcome)
        else:
            now, known = self.monotonic(), self.ledger
            self.books_since = now if known is None else self.books_since
            ledger = begin(TimeClass.PROGRAM_STARTUP, now) if known is None else book(known, now)
            synced = JobSynced(world.policy, dict(world.pods), terminating=dict(world.terminating))
            self.jobs.sync_job(JOB, replace(synced, trained=world.shows_round), ledger=ledger)
        world.checks.decided(self)

    def die(self) -> None:
        """End; the agents notice sooner or later."""
        self.dead = True
        for link in self.links.values():
            if not link.silent:  # over a silent link the agent is not notified either
                self._clock.soon(0.0, 1.0, lambda link=link: link.agent.disconnected(link))  # type: ignore[misc]
            link.silent = True

    def _changed(self, job: str, events: tuple[Any, ...]) -> None:
        for event in events:
            self.world.log(f"leader {self.term}", f"{event.reason}: {event.message}")


class _Errors(logging.Handler):
    """Turns an error that the coordinator would log and survive into the end of the schedule."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first one."""
        if ERRORS.first is None:
            ERRORS.first = record.getMessage() + (f": {record.exc_info[1]!r}" if record.exc_info else "")


class _First:
    first: str | None = None


ERRORS = _First()
"""The first error of this process; `Checks.decided` raises it."""
_log = logging.getLogger("pytorchjob_operator.coordinator")
_log.addHandler(_Errors(logging.ERROR))
_log.setLevel(logging.ERROR)
_log.propagate = False
