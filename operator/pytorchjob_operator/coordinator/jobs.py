"""What is known of each job, and the way from what happens to what is done about it.

Every event goes through `rounds.decide`; its orders go out, what people want to know is handed on. One loop alone may
call it; `state` may be read from anywhere.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytorchjob_agent.contract.messages import FromAgent, Hello, Message, Refused, Stop
from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.coordinator import door
from pytorchjob_operator.coordinator.limits import Limits
from pytorchjob_operator.rounds import decide
from pytorchjob_operator.rounds.state import (
    Closed,
    Decision,
    Event,
    Expect,
    Hangup,
    JobState,
    News,
    Policy,
    Said,
    Seat,
    Tell,
    Tick,
    TurnedAway,
)

_log = logging.getLogger(__name__)
_FORGOTTEN = Refused("the job is over, or gone", again=True)

OnChange = Callable[[str, tuple[News, ...]], None]


class Link(Protocol):
    """A connection, as far as a job needs one."""

    link: int
    job: str
    index: int

    def send(self, message: Message) -> None:
        """Say something."""

    def hang_up(self) -> None:
        """Close once everything is said."""


@dataclass(slots=True)
class _Job:
    state: JobState
    links: dict[int, Link] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)


class Jobs:
    """All jobs that the operator expects agents of."""

    def __init__(self, term: int, clock: Callable[[], float], on_change: OnChange, limits: Limits) -> None:
        """`on_change(uid, news)` is called when there is something new to show of a job."""
        self._term, self._clock, self._on_change, self._limits = term, clock, on_change, limits
        self._jobs: dict[str, _Job] = {}
        self._concluded: dict[str, bool] = {}
        """The jobs that have ended while pods of them still run, and whether they failed."""
        self.looked = clock()
        """When time was last told."""

    def state(self, uid: str) -> JobState | None:
        """What is known of a job now; never changed afterwards."""
        job = self._jobs.get(uid)
        return None if job is None else job.state

    def expect(self, uid: str, policy: Policy, seats: Mapping[int, Seat]) -> None:
        """The operator's word on what a job is now."""
        self._concluded.pop(uid, None)
        job = self._jobs.get(uid)
        if job is None:
            job = self._jobs[uid] = _Job(JobState(policy, self._term))
        job.places.update({seat.pod: index for index, seat in seats.items()})
        self._feed(uid, Expect(policy, seats))

    def conclude(self, uid: str, *, failed: bool) -> None:
        """The job has ended: its agents are told to stop if they were not, and so are those that come later."""
        self._concluded[uid] = failed
        job = self._jobs.pop(uid, None)
        for link in tuple(job.links.values()) if job and job.state.end is None else ():
            link.send(_stop(failed, trains=True))

    def stop_for(self, hello: Hello) -> Stop | None:
        """What an agent of a job that has ended is told; None for one of another job.

        One that comes after the end has nothing to do, and is not to be started again.
        """
        failed = self._concluded.get(hello.job)
        return None if failed is None else _stop(failed, trains=hello.round is not None)

    def forget(self, uid: str) -> None:
        """The job is over or gone: its agents are sent away."""
        self._concluded.pop(uid, None)
        job = self._jobs.pop(uid, None)
        for link in tuple(job.links.values()) if job else ():
            link.send(_FORGOTTEN)
            link.hang_up()

    def known(self, uid: str) -> door.Known | None:
        """What the door needs to know of a job."""
        job = self._jobs.get(uid)
        if job is None:
            return None
        return door.Known(job.places, len(job.links), self._limits.links(len(job.state.seats)))

    def enter(self, link: Link, hello: Hello) -> None:
        """A pod that has proved its name comes in."""
        link.job, link.index = hello.job, hello.index
        self._jobs[hello.job].links[link.link] = link
        self._feed(hello.job, Said(link.link, None, hello))

    def said(self, link: Link, message: FromAgent) -> None:
        """Something was said on a connection that came in."""
        self._feed(link.job, Said(link.link, link.index, message))

    def left(self, link: Link) -> None:
        """A connection that came in has ended."""
        job = self._jobs.get(link.job)
        if job is not None and job.links.pop(link.link, None) is not None:
            self._feed(link.job, Closed(link.link, link.index))

    def turned_away(self, uid: str, message: str) -> None:
        """Somebody called itself one of this job's pods and could not prove it; nothing happens if nobody has it."""
        if uid in self._jobs:
            self._feed(uid, TurnedAway(message))

    def tick(self) -> None:
        """Time went by."""
        self.looked = self._clock()
        for uid, job in tuple(self._jobs.items()):
            if job.state.members or job.state.problems:
                self._feed(uid, Tick())

    def _feed(self, uid: str, event: Event) -> None:
        job = self._jobs.get(uid)
        if job is None:
            return
        before = job.state
        try:
            decision = decide(before, event, self._clock())
        except Exception:  # a defect of ours must not take the other jobs along
            _log.exception("job %s: no decision about %s", uid, type(event).__name__)
            if isinstance(event, Said) and event.link in job.links:
                job.links[event.link].hang_up()
            return
        job.state = decision.state
        self._carry_out(job, decision)
        if decision.news or _shown(before) != _shown(decision.state):
            _log.info("job %s: %s", uid, decision.reason)
            self._on_change(uid, decision.news)

    def _carry_out(self, job: _Job, decision: Decision) -> None:
        for order in decision.orders:
            link = job.links.get(order.link)
            match order:
                case Tell(_, message) if link is not None:
                    link.send(message)
                case Hangup() if link is not None:
                    link.hang_up()
                case _:
                    pass  # that connection has ended already


def _stop(failed: bool, *, trains: bool) -> Stop:
    code = ExitCode.WORKER_FAILED if failed and trains else ExitCode.OK
    return Stop(code, *(("JobFailed", "the job has failed") if failed else ("JobSucceeded", "the job has succeeded")))


def _shown(state: JobState) -> tuple[Any, ...]:
    """What a job's status says of its rounds, less the steps, which change all the time: only whether any are told."""
    round_ = state.round
    running = state.gathering is None
    steps = round_ is not None and round_.first_step is not None
    return (round_.id if round_ else None, running, state.restarts, state.problems, state.end, steps)
