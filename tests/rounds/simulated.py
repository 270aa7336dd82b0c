"""A job in simulated time: connections that are late or die, a coordinator that may be replaced, pods that come and go.

Everything follows from the seed and the faults. `notes` checks on the way what has to be true at every moment.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from pytorchjob_agent.contract.messages import Hello, Refused
from pytorchjob_operator.rounds import decide
from pytorchjob_operator.rounds.invariants import find_violations
from pytorchjob_operator.rounds.state import (
    Close,
    ConnectionClosed,
    Input,
    JobState,
    JobSynced,
    MessageReceived,
    Send,
    Tick,
)
from pytorchjob_operator.rounds.values import ExpectedPod, Policy
from tests.rounds.ends import end_of
from tests.rounds.model_agent import Agent
from tests.rounds.notes import Notes

TICK = 0.25
START = 1000.0


class Clock:
    """What is going to happen, in order."""

    def __init__(self, seed: int) -> None:
        self.now = START
        self.random = Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), do))

    def soon(self, low: float, high: float, do: Callable[[], None]) -> None:
        self.after(self.random.uniform(low, high), do)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, do = heapq.heappop(self._queue)
            do()
        self.now = end


class Link:
    """One connection: in order, late; dumb once it is broken; each side learns of the end in its own time."""

    def __init__(self, clock: Clock, number: int, agent: Agent, coordinator: "Coordinator") -> None:
        self.clock, self.number, self.agent, self.coordinator = clock, number, agent, coordinator
        self.dumb = False
        self._up = self._down = 0.0

    def say(self, message: Any) -> None:
        """From the agent to the coordinator."""
        self._up = self._send(self._up, lambda: self.coordinator.hear(self, message))

    def tell(self, message: Any) -> None:
        """From the coordinator to the agent."""
        self._down = self._send(self._down, lambda: self.agent.hear(self, message))

    def end_of_agent(self) -> None:
        """The agent closed it: the coordinator learns of it after what was said."""
        self._up = self._send(self._up, lambda: self.coordinator.lose(self))

    def end_of_coordinator(self) -> None:
        self._down = self._send(self._down, lambda: self.agent.lose(self))

    def stall(self, seconds: float) -> None:
        """Nothing gets through for a while, and nothing is lost."""
        self._up = self._down = self.clock.now + seconds

    def cut(self) -> None:
        """What is under way is lost; both sides notice, each in its own time."""
        self.dumb = True
        self.clock.soon(0.0, 1.0, lambda: self.coordinator.lose(self))
        self.clock.soon(0.0, 1.0, lambda: self.agent.lose(self))

    def _send(self, last: float, deliver: Callable[[], None]) -> float:
        if self.dumb:
            return last
        at = max(last, self.clock.now + self.clock.random.uniform(0.001, 0.05))
        self.clock.after(at - self.clock.now, lambda: None if self.dumb else deliver())
        return at


class Coordinator:
    """The shell around `decide`, as small as it can be."""

    def __init__(self, world: "World", term: int) -> None:
        self.world, self.term = world, term
        self.state: JobState | None = None
        self.links: dict[int, Link] = {}
        self.dead = False
        self.asleep = 0.0

    def expect(self, event: JobSynced) -> None:
        if self.state is None:
            self.state = JobState(event.policy, self.term)
        self.feed(event)

    def hear(self, link: Link, message: Any) -> None:
        if self._later(lambda: self.hear(link, message)) or self.dead:
            return
        if isinstance(message, Hello):
            if self.state is None:
                link.tell(Refused("the operator does not know this job yet", again=True))
                link.end_of_coordinator()
                return
            self.links[link.number] = link
            self.feed(MessageReceived(link.number, None, message))
        elif link.number in self.links:
            self.feed(MessageReceived(link.number, link.agent.index, message))

    def lose(self, link: Link) -> None:
        if self._later(lambda: self.lose(link)) or self.dead:
            return
        if self.links.pop(link.number, None) is not None:
            self.feed(ConnectionClosed(link.number, link.agent.index))

    def tick(self) -> None:
        if self.dead:
            return
        if self.world.clock.now >= self.asleep and self.state is not None and self.state.members:
            self.feed(Tick())
        self.world.clock.after(TICK, self.tick)

    def feed(self, event: Input) -> None:
        assert self.state is not None
        decision = decide(self.state, event, self.world.clock.now)
        assert find_violations(self.state, decision) == []
        self.state = decision.state
        self.world.notes.decided(decision, self.links)
        for command in decision.commands:
            link = self.links.get(command.connection)
            match command:
                case Send(_, message) if link is not None:
                    link.tell(message)
                case Close() if link is not None:
                    link.end_of_coordinator()
                    del self.links[link.number]

    def die(self) -> None:
        self.dead = True
        for link in self.links.values():
            link.cut()

    def _later(self, do: Callable[[], None]) -> bool:
        """Put something off while asleep."""
        if self.world.clock.now >= self.asleep or self.dead:
            return False
        self.world.clock.after(self.asleep - self.world.clock.now, do)
        return True


class World:
    """The job: its pods by index, and its coordinator."""

    def __init__(self, seed: int, policy: Policy, nprocs: Sequence[int]) -> None:
        self.clock = Clock(seed)
        self.notes = Notes(self.clock)
        self.policy = policy
        self.agents: dict[int, Agent] = {}
        self.old: list[Agent] = []
        """Whoever was replaced; some of them still live."""
        self.pods: dict[int, ExpectedPod] = {}
        self._numbers = itertools.count(1)
        self.coordinator = Coordinator(self, 1)
        self.coordinator.tick()
        for index, nproc in enumerate(nprocs):
            self.add_pod(index, nproc)

    # The cluster.

    def add_pod(self, index: int, nproc: int = 1) -> None:
        """The operator makes a pod; it is told of it sooner or later than the pod starts."""
        uid = f"uid-{next(self._numbers)}"
        self.pods[index] = ExpectedPod(f"job-{index}", uid)
        self.tell_coordinator(0.0, 2.0)
        self.clock.soon(0.0, 3.0, lambda: self.start(index, uid, nproc))

    def start(self, index: int, uid: str, nproc: int) -> None:
        """The container of a pod starts, for the first time or anew, if the pod is still there."""
        if index not in self.pods or self.pods[index].pod_uid != uid:
            return
        if index in self.agents:
            self.old.append(self.agents[index])
        self.agents[index] = Agent(self, index, uid, nproc)

    def remove_pod(self, index: int) -> None:
        """The pod is gone by the operator's word; what runs of it may go on for a while."""
        if self.pods.pop(index, None) is not None:
            self.tell_coordinator(0.0, 1.0)
        if index in self.agents:
            agent = self.agents.pop(index)
            agent.deleted = True
            self.old.append(agent)

    def tell_coordinator(self, low: float, high: float) -> None:
        """The operator tells what the job is by then."""
        self.clock.soon(low, high, lambda: self.coordinator.dead or self._expect())

    def _expect(self) -> None:
        coordinator = self.coordinator
        coordinator._later(self._expect) or coordinator.expect(JobSynced(self.policy, dict(self.pods)))

    def ended(self, agent: Agent, code: int) -> None:
        """A container ended: it is started again unless it succeeded or the job has ended."""
        state = self.coordinator.state
        if self.agents.get(agent.index) is not agent:
            return
        if code == 0:
            self.pods[agent.index] = replace(self.pods[agent.index], succeeded=True)
            self.tell_coordinator(0.0, 1.0)
        elif agent.draining:
            index, nproc = agent.index, agent.nproc
            self.remove_pod(index)
            self.clock.soon(0.2, 3.0, lambda: index in self.pods or self.add_pod(index, nproc))
        elif state is None or end_of(state) is None:
            self.clock.soon(0.2, 3.0, lambda: self._again(agent))

    def _again(self, agent: Agent) -> None:
        if self.agents.get(agent.index) is agent:
            self.start(agent.index, agent.uid, agent.nproc)

    # The network.

    def connect(self, agent: Agent) -> Link | None:
        """A new connection; None while nobody listens or the way is closed."""
        if self.coordinator.dead or agent.cut_off:
            return None
        return Link(self.clock, next(self._numbers), agent, self.coordinator)

    def living(self) -> list[Agent]:
        return [one for one in (*self.agents.values(), *self.old) if not one.dead]

    def new_coordinator(self, term: int | None = None) -> None:
        """Another leader, that knows nothing yet; of the next term, if nobody tampered with that."""
        self.coordinator.die()
        self.coordinator = Coordinator(self, self.coordinator.term + 1 if term is None else term)
        self.coordinator.tick()
        self.tell_coordinator(0.0, 1.5)

    def run(self, seconds: float) -> None:
        self.clock.run(seconds)
