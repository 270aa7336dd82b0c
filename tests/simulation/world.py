"""The cluster around a job: its pods, its agents, its leader, and what the operator's plan does with them."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_operator.plan import silent_pods
from pytorchjob_operator.rounds.summary import summarize
from pytorchjob_operator.rounds.values import ExpectedPod, Policy

from .agent import Agent
from .checks import Checks
from .clock import START, Clock
from .leader import ERRORS, Leader
from .network import Link
from .store import RoundStore

Log = Callable[[str], None]


class World:
    """One job."""

    def __init__(self, random: Random, policy: Policy, nprocs: Sequence[int], log: Log | None) -> None:
        self.clock = Clock(random)
        self._log = log
        self.details = log is not None and bool(os.environ.get("MESSAGES"))
        """Whether the trace shows each message."""
        self.policy = policy
        self.shares_state = sum(nprocs) % 3 != 0
        """Whether the script takes lost members in between two steps."""
        self.checks = Checks(self)
        self.agents: dict[int, Agent] = {}
        self.old: list[Agent] = []
        """Agents that were replaced; some of them still live."""
        self.pods: dict[int, ExpectedPod] = {}
        self.terminating: dict[int, str] = {}
        """The uids of pods that are asked to go, or scaled away, and still run."""
        self.stores: dict[tuple[str, int], RoundStore] = {}
        self.listeners: set[tuple[str, int]] = set()
        self.outcome: bool | None = None
        """Whether the job failed, once the operator has noticed its end."""
        self.shows_round = False
        """Whether the job's status names a round, which a leader wrote some seconds after it had begun."""
        self.ending = False
        self.end_forgotten = False
        """Whether agents have ended because of an end that its leader could not record before it died."""
        self._forgot_end = False
        self.saved_step = 0
        self.busy_until = 0.0
        """When the last effect of a fault is over."""
        self.silent_seconds = 0.0
        """How long links or the leader have stood still: reports get that much older."""
        self.twice = 0.0
        self.delay = 0.03
        """How long a message takes at most."""
        self.terms_went_back = False
        """Whether a lost Lease and a late clock gave a leader a lower term: terms are times (`kube/lease`)."""
        self.faults = 0
        """How many faults have happened."""
        self.events: Counter[str] = Counter()
        """How often each thing has happened, in words."""
        self._number = 0
        self.leader_number = 1
        self.terms = {int(START)}
        ERRORS.first = None  # other tests of this process make the coordinator log errors too
        self.leader = Leader(self, int(START))
        for index, nproc in enumerate(nprocs):
            self.add_pod(index, nproc)
        self._replace_silent()

    def log(self, name: str, text: str) -> None:
        """Add a line to the trace."""
        if self._log is not None:
            self._log(f"{self.clock.now - 1000:8.3f}  {name:12} {text}")

    def event(self, what: str) -> None:
        """Count that this has happened."""
        self.events[what] += 1

    def detail(self, name: str, verb: str, line: bytes) -> None:
        """Add a message to the trace, if it shows messages."""
        if self.details:
            self.log(name, f"  {verb} {line.decode()[:200]}")

    def next_number(self) -> int:
        """Return a number that nothing else has."""
        self._number += 1
        return self._number

    # The cluster.

    def add_pod(self, index: int, nproc: int = 1) -> None:
        """The operator creates a pod; the coordinator knows it sooner or later than its agent starts."""
        uid = f"uid-{self.next_number()}"
        self.pods[index] = ExpectedPod(f"job-{index}", uid)
        self.sync(0.0, 2.0)
        self.clock.soon(0.0, 3.0, lambda: self.start(index, uid, nproc))

    def start(self, index: int, uid: str, nproc: int) -> None:
        """The container of a pod starts, if the pod is still there."""
        if index not in self.pods or self.pods[index].pod_uid != uid or self.outcome is not None:
            return
        if index in self.agents:
            self.old.append(self.agents[index])
        self.agents[index] = Agent(self, index, uid, nproc)

    def remove_pod(self, index: int) -> None:
        """The pod is gone as the operator sees it; its processes may live on for a while."""
        known = self.pods.pop(index, None), self.terminating.pop(index, None)
        if known != (None, None):
            self.sync(0.0, 1.0)
        if index in self.agents:
            agent = self.agents.pop(index)
            agent.deleted = True
            self.old.append(agent)

    def terminate(self, agent: Agent) -> None:
        """The pod is being deleted: its agent is asked to go, and the operator does not expect it any more."""
        agent.drain()
        pod = self.pods.get(agent.index)
        if not agent.dead and pod is not None and pod.pod_uid == agent.uid:
            self.terminating[agent.index] = self.pods.pop(agent.index).pod_uid
            self.sync(0.0, 1.0)

    def threaten(self, random: Random) -> None:
        """The operator sees a pod threatened, and sees that it is not any more, again and again."""
        for index, pod in tuple(self.pods.items()):
            threat = "its node is cordoned" if not pod.threat and random.random() < 0.3 else ""
            if threat != pod.threat:
                self.pods[index] = replace(pod, threat=threat)
                self.event("a pod is threatened" if threat else "a threat is over")
        if self.outcome is None:
            self.sync(0.0, 1.0)
        self.clock.after(20.0 * random.random(), lambda: self.threaten(random))

    def _replace_silent(self) -> None:
        """The operator replaces pods whose agents are silent, as `plan/silent_pods` decides."""
        self.clock.after(1.0, self._replace_silent)
        state = self.leader.state
        if self.leader.dead or state is None or self.outcome is not None:
            return
        silent = {pod.uid: pod.seconds for pod in summarize(state, self.leader.monotonic()).silent}
        for index, agent in tuple(self.agents.items()):
            well = index in self.pods and not agent.dead and 2 * len(silent) <= len(self.pods)
            if well and silent.get(self.pods[index].pod_uid, 0.0) >= silent_pods.SILENT.total_seconds():
                self.log("operator", f"replaces the silent pod of replica {index}")
                self.remove_pod(index)
                agent.die(137, "its silent pod is deleted")
                self.add_pod(index, agent.nproc)

    def show_round(self, leader: Leader) -> None:
        """The operator of this leader writes its round into the job's status, if it still leads."""
        self.shows_round = self.shows_round or not leader.dead

    def sync(self, low: float, high: float) -> None:
        """The operator passes on what the job is by then."""
        self.clock.soon(low, high, lambda: self.leader.sync())

    def job_ended(self, *, failed: bool) -> None:
        """The operator is going to see that the job has ended."""
        self.ending, leader = True, self.leader

        def noticed() -> None:
            if leader.dead:  # only that leader knew
                return
            self.outcome = failed
            self.log("operator", f"the job has {'failed' if failed else 'succeeded'}")
            self.leader.sync()

        self.clock.soon(0.1, 1.5, noticed)

    def ended(self, agent: Agent, code: int) -> None:
        """A container ended: it is started again unless it succeeded or the job has ended."""
        if self.agents.get(agent.index) is not agent:
            return
        if code and self._forgot_end and agent.session.inbox.stop is not None:
            self.end_forgotten = True  # the former leader's command was on its way when that leader died
        if code == 0:
            self.terminating.pop(agent.index, None)
            self.pods[agent.index] = ExpectedPod(f"job-{agent.index}", agent.uid, succeeded=True)
            self.sync(0.0, 1.0)
        elif agent.leave_by is not None:
            index, nproc = agent.index, agent.nproc
            self.remove_pod(index)
            self.clock.soon(0.2, 3.0, lambda: index in self.pods or self.add_pod(index, nproc))
        elif self.outcome is None and not self.ending:
            self.clock.soon(0.2, 3.0, lambda: self._again(agent))

    def _again(self, agent: Agent) -> None:
        if self.agents.get(agent.index) is agent:
            self.start(agent.index, agent.uid, agent.nproc)

    # The network.

    def connect(self, agent: Agent) -> Link | None:
        """Return a new connection; None while there is no leader or no way to it."""
        if self.leader.dead or agent.cut_off:
            return None
        link = Link(self.clock, self.next_number(), agent, self.leader)
        link.twice = self.twice
        return link

    def serve(self, agent: Agent, id_: RoundId) -> RoundStore:
        """Open the store of a round behind an agent's port."""
        made = self.stores[agent.address, agent.port] = RoundStore(agent, id_)
        return made

    def listen(self, agent: Agent) -> int:
        """Return a free port of this agent."""
        port = 20_000 + self.next_number()
        self.listeners.add((agent.address, port))
        return port

    def living(self) -> list[Agent]:
        """Return all agents that have not ended."""
        return [agent for agent in (*self.agents.values(), *self.old) if not agent.dead]

    def new_leader(self, behind: float | None = None) -> None:
        """Start a leader without state. `behind`: the Lease is gone, and its clock is this many seconds late."""
        self.leader.die()
        self.leader_number += 1
        term = int(self.clock.now - (behind or 0.0))
        if behind is None:
            term = max(term, self.leader.term + 1)
        while term in self.terms:  # a process that creates the Lease waits for longer than a second
            term += 1
        self.terms_went_back = self.terms_went_back or term < self.leader.term
        self.terms.add(term)
        self.leader = Leader(self, term)
        self.log("operator", f"a new leader of term {self.leader.term}")
        self.sync(0.0, 1.5)
        if self.ending and self.outcome is None:
            self._forget_end()

    def _forget_end(self) -> None:
        """The end was not recorded when its leader died: containers that failed start again.

        Agents that still live report once more what they know. Without any of them the job starts as if it were new.
        """
        self.ending, self._forgot_end = False, True
        self.event("an end of the job is forgotten with its leader")
        for agent in self.agents.values():
            if agent.dead and agent.code:
                self.end_forgotten = True
                self.clock.soon(0.2, 3.0, lambda agent=agent: self._again(agent))  # type: ignore[misc]
