"""What has to be true of a simulated job at every moment."""

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from pytorchjob_agent.contract.messages import Assigned, Message, Refused, RoundId, Shrink
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_agent.rendezvous.decide import Workers
from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.goodput.classes import TRAINING, TimeClass
from pytorchjob_operator.plan.elastic import STATUS_DELAY
from pytorchjob_operator.rounds.phases import Ended, Running, name_of
from pytorchjob_operator.rounds.state import JobState

from .clock import START
from .leader import ERRORS

if TYPE_CHECKING:
    from .agent import Agent
    from .leader import Leader
    from .world import World

PULLED_DOWN = 0.7
"""How likely a worker notices that one of another member has gone."""

ISLAND_SECONDS = 28.0
"""How long an agent has to be awake until it has to have noticed that its group is cut off."""

REPORT_SECONDS = 4.5
"""How old a member's report that it hears a peer may be: 3 s, up to a second under way, and the next tick."""
STOP_SECONDS = 3.0
"""By then an agent that has reached the leader has heard that its round is over, and has killed its workers."""
PUNCTUAL_SECONDS = 0.1
"""Where no message takes longer than this, no report of a dead member arrives after the end of its connection."""


_BOOKED = {
    PhaseName.RUNNING: {*TRAINING, TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME},
    PhaseName.RENDEZVOUS: {TimeClass.PROGRAM_STARTUP, TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION},
    PhaseName.ENDED: {TimeClass.OTHER},
}
"""The classes in which a leader may book the time of a phase."""


def _books(leader: "Leader", state: JobState) -> None:
    """Every second since the leader knows the job is booked once, and now it books the right class."""
    ledger = leader.ledger
    if ledger is None:
        return
    passed = ledger.until - leader.books_since
    assert abs(ledger.total - passed) < 1e-3, f"{ledger.total} s are booked of {passed} s: {ledger}"
    allowed = _BOOKED.get(name_of(state.phase))
    assert allowed is None or ledger.current in allowed, f"{ledger.current} is booked in phase {state.phase}"


class Checks:
    """What was assigned, who runs where, what has failed."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.assigned: dict[tuple[int, RoundId], dict[int, tuple[Agent, Assigned]]] = {}
        """By the leader's number and the round: the places by rank."""
        self.members: dict[RoundId, dict[int, Agent]] = {}
        """The agents that have begun a round, by rank. After a lost Lease a later round may have a lower id."""
        self.running: dict[RoundId, dict[Agent, None]] = {}
        """The agents that have workers, in the order in which the workers began."""
        self.sizes: dict[RoundId, int] = {}
        self.formed: dict[RoundId, tuple[float, frozenset[RoundId]]] = {}
        """When a leader formed a round, and which groups at work it could not know of."""
        self.offers: dict[RoundId, set[int]] = {}
        self.shrinks: dict[tuple[RoundId, int], tuple[int, ...]] = {}
        """The members that have left, by round and number of the change."""
        self.real: set[RoundId] = set()
        """Rounds in which a worker failed of itself."""
        self.problem = ""
        """What was wrong with a message of the leader."""
        self.fenced_rounds: set[RoundId] = set()
        """Rounds whose members were all cut off from the control plane for longer than fenceSeconds."""
        self.saved = RoundId(0, 0)
        """The latest round that has made a step, and so may have saved."""
        self._restarts = 0
        self._cut_off = ""

    # What the leader does.

    def sent(self, agent: "Agent", message: Message) -> None:
        """A message of the leader goes out."""
        if isinstance(message, Assigned):
            self._assign(agent, message)
        elif isinstance(message, Shrink):
            self._shrink(agent, message)
        elif isinstance(message, Refused) and not (message.again or message.fenced):
            raise AssertionError(f"{agent} is refused for good: {message.message}")

    def _assign(self, agent: "Agent", assigned: Assigned) -> None:
        group = self.assigned.setdefault((self.world.leader_number, assigned.round), {})
        known = group.get(assigned.rank)
        if known is not None and known != (agent, assigned) and not assigned.enters:
            raise AssertionError(f"round {assigned.round} is opened twice, or has two members of rank {assigned.rank}")
        group[assigned.rank] = agent, assigned
        if any(member is agent and rank != assigned.rank for rank, (member, _) in group.items()):
            raise AssertionError(f"{agent} has two ranks in round {assigned.round}")
        if len(group) == assigned.size:
            self._consistent([group[rank] for rank in sorted(group)])

    def _shrink(self, agent: "Agent", shrink: Shrink) -> None:
        """A round goes on without members, as its leader says; all that remain hear the same."""
        assert agent.assigned is not None
        if agent.assigned.round > shrink.round:
            return  # its members have agreed on another one meanwhile
        assert agent.assigned.round == shrink.round, f"{agent} hears of a change of {shrink.round}, which it is not in"
        own = agent.assigned.rank in shrink.members
        assert not (own and agent.workers and not agent.stopping), f"{agent} trains, and hears that it has left"
        assert 0 not in shrink.members, f"round {shrink.round} goes on without the host of its store"
        size = agent.assigned.size - len(shrink.members)
        assert size >= self.world.policy.min_members, f"round {shrink.round} goes on with {size} members"
        known = self.shrinks.setdefault((shrink.round, shrink.number), shrink.members)
        assert known == shrink.members, f"members of round {shrink.round} hear of different changes"
        group = self._by_rank(shrink.round)
        ends = [0, *accumulate(group[rank].nproc for rank in sorted(group))]
        ranks = [each for rank in shrink.members for each in range(ends[rank], ends[rank + 1])]
        assert [*shrink.ranks] == ranks, f"{shrink.members} of round {shrink.round} do not have {shrink.ranks}"

    def _by_rank(self, id_: RoundId) -> "dict[int, Agent]":
        """The members of a round: those that a leader assigned, or those that have agreed on it without one."""
        assigned = [group for (_, known), group in self.assigned.items() if known == id_]
        return {rank: agent for rank, (agent, _) in assigned[-1].items()} if assigned else self.members[id_]

    def _consistent(self, group: "list[tuple[Agent, Assigned]]") -> None:
        """All members have places that fit together."""
        places, policy = [assigned for _, assigned in group], self.world.policy
        first, host = places[0], group[0][0]
        common = {(p.size, p.world_size, p.restarts, p.master_address, p.master_port) for p in places}
        assert len(common) == 1, f"members of round {first.round} have different worlds"
        assert [place.rank for place in places] == list(range(first.size)), f"ranks of round {first.round}"
        indices = [agent.index for agent, _ in group]
        assert indices == sorted(set(indices)), f"ranks of round {first.round} do not follow the replicas: {indices}"
        assert policy.min_members <= first.size <= policy.max_members, f"round {first.round} has {first.size} members"
        ranks = 0
        for agent, place in group:
            assert place.first_rank == ranks, f"ranks of round {first.round} do not add up"
            ranks += agent.nproc
        assert first.world_size == ranks, f"the world of round {first.round} is not the sum of its members"
        assert first.master_address == host.address, f"round {first.round} has its store not at rank 0"
        early = self.world.clock.now < START + policy.last_call_timeout
        if not (self.members or self.world.faults or self.world.twice) and early:
            expected = min(len(self.world.pods), policy.max_members)
            assert first.size == expected, f"{first.size} of {expected} members in a first round before the last call"

    def decided(self, leader: "Leader") -> None:
        """The leader has decided about something."""
        assert not self.problem, self.problem
        error, ERRORS.first = ERRORS.first, None
        assert error is None, f"the coordinator found a defect of its own: {error}"
        assert not leader.jobs.violations, "the coordinator found an invariant violated"
        state = leader.state
        if state is None:
            return
        self._note_round(leader, state)
        _books(leader, state)
        if state.restarts != self._restarts:
            self._restarts = state.restarts
            assert state.restarts <= len(self.real) + len(self.shrinks), (
                f"{state.restarts} restarts are counted, but workers failed of themselves only in"
                f" {[str(id_) for id_ in sorted(self.real)]}"
            )
        cut_off = state.problems.get(TrainingReason.COORDINATOR_UNREACHABLE, "")
        if cut_off != self._cut_off:
            self._cut_off = cut_off
            self._reported_alive(cut_off)
        phase = state.phase
        if isinstance(phase, Ended) and self.world.outcome is None and not self.world.ending:
            end = phase.end
            if end.reason is EndReason.SUCCEEDED:
                self._all_done()
            self.world.job_ended(failed=end.reason is not EndReason.SUCCEEDED)

    def _note_round(self, leader: "Leader", state: JobState) -> None:
        """Keep what the leader could know when it formed this round; some seconds later the status names the round."""
        phase, world = state.phase, self.world
        if not isinstance(phase, Running) or phase.round.adopted or phase.round.id in self.formed:
            return
        unknown = frozenset(id_ for id_ in self.running if self._is_unknown(id_))
        self.formed[phase.round.id] = world.clock.now, unknown
        if not world.shows_round:
            world.clock.after(STATUS_DELAY.total_seconds(), lambda: world.show_round(leader))

    def _reported_alive(self, problem: str) -> None:
        """A member that its peers hear, as the leader reports, is alive, or died just now after it was cut off."""
        world = self.world
        punctual = world.delay < PUNCTUAL_SECONDS and not world.silent_seconds
        pods = re.findall(r"job-(\d)", problem.partition(" cannot reach ")[0])
        for pod in pods:
            agents = [agent for agent in (*world.agents.values(), *world.old) if agent.index == int(pod)]
            since = world.clock.now - REPORT_SECONDS - world.silent_seconds
            lived = [agent for agent in agents if not agent.dead or agent.died > since]
            assert any(not (agent.dead and agent.heard_to_the_end and punctual) for agent in lived), (
                f"no agent of replica {pod} lives, but the job reports: {problem}"
            )

    def _all_done(self) -> None:
        for id_, group in self.members.items():
            _, left = max(
                ((number, known) for (of, number), known in self.shrinks.items() if of == id_), default=(0, ())
            )
            rest = {rank: agent for rank, agent in group.items() if rank not in left}
            if len(rest) == self.sizes[id_] - len(left) and all(agent.finished == id_ for agent in rest.values()):
                return
        raise AssertionError("the job succeeded although the workers of a member are not done")

    # What agents do.

    def fenced(self, agent: "Agent", assigned: Assigned, mended: int) -> None:
        """An agent that has been cut off from all others all the time, and never frozen, has no workers any more."""
        still = agent.workers is not None and agent.assigned is assigned and agent.alone and agent.mended == mended
        if still and not agent.dead and not agent.asleep:
            raise AssertionError(f"{agent} hears neither the coordinator nor a peer, and its workers train on")

    def island_fenced(self, members: "list[Agent]") -> None:
        """No agent of a group that was cut off for longer than fenceSeconds has workers, unless one was frozen.

        A member that was frozen counts its time without contact from its waking, and so does the group with it. A
        member that was reached meanwhile, by the end of another fault, was contact for its whole group.
        """
        now = self.world.clock.now
        lived = now - ISLAND_SECONDS
        at_work = [each for each in members if each.islanded and each.workers is not None and not each.dead]
        still = [
            each
            for each in at_work
            if all(peer in members or (peer.dead and peer.died < lived) for peer in self._group(each))
        ]
        if any(each.asleep > now - ISLAND_SECONDS for each in members):
            return
        assert not still, f"{still} were cut off from the control plane as a group, and their workers train on"
        here = {each for each in members if each.islanded}
        for id_, group in self.members.items():
            if here.issuperset(group.values()):
                self.fenced_rounds.add(id_)
                self.world.event("a group was cut off for longer than fenceSeconds")

    def _group(self, agent: "Agent") -> "list[Agent]":
        return list(self.members.get(agent.assigned.round, {}).values()) if agent.assigned else []

    def saves(self, agent: "Agent", id_: RoundId) -> None:
        """The workers of a complete group make a step, and may save: the fence must not refuse the newest group."""
        if agent.deleted or self.world.terms_went_back:
            return
        assert id_ >= self.saved, f"round {id_} of {agent} trains, but a guard has accepted round {self.saved}"
        self.saved = id_

    def offered(self, old: Assigned) -> None:
        """A member offers to continue without the coordinator."""
        self.offers.setdefault(old.round, set()).add(old.rank)

    def begins(self, agent: "Agent", assigned: Assigned, agreed: bool) -> None:
        """An agent takes part in a round from now on."""
        assert not agent.busy, f"{agent} begins round {assigned.round} while its workers run"
        old = agent.assigned
        later = old is None or assigned.round > old.round
        back = old is not None and assigned.round == old.round and assigned.enters > old.enters
        assert later or back, f"{agent} goes back from {old} to {assigned.round}"
        if agreed:
            assert old is not None
            assert (assigned.rank, assigned.size) == (old.rank, old.size), f"{agent} has another rank in its next round"
            offers = self.offers.get(old.round, set())
            assert len(offers) == old.size, (
                f"{agent} agrees on {assigned.round}, only ranks {sorted(offers)} have offered"
            )
            assert old.round not in self.fenced_rounds, (
                f"{agent} agrees on {assigned.round}; its group was cut off for so long that others may train"
            )
            self.real.add(old.round)  # members take every restart of their own for a failure's
            above = [id_ for id_ in self.members if id_.follows(old.round) and id_ > assigned.round]
            assert not above, f"{agent} agrees on {assigned.round}, and others were in {above[0]}"

    def started(self, agent: "Agent", assigned: Assigned) -> None:
        """The workers of an agent start."""
        id_ = assigned.round
        group = self.members.setdefault(id_, {})
        before = group.get(assigned.rank)
        assert (
            before in (None, agent)
            or before is None
            or before.dead
            or assigned.enters  # the others have left that one behind, and it may not know it yet
            or id_ not in self.running
            or (before not in self.running[id_])
        ), f"two agents of rank {assigned.rank} work in round {id_}"
        group[assigned.rank] = agent
        self.sizes[id_] = assigned.size
        self.running.setdefault(id_, {})[agent] = None
        where = {(a.assigned.master_address, a.assigned.master_port) for a in self.running[id_] if a.assigned}
        assert len(where) == 1, f"members of round {id_} use different stores: {sorted(where)}"
        assert agent.store_at is not None
        assert agent.store_at.round == id_, f"{agent} uses the store of {agent.store_at.round} in round {id_}"
        host = agent.store_at.host
        assert host.assigned is None or host.assigned.rank == 0, f"{agent} uses the store of {host}, not of rank 0"
        self.one_group(id_)

    def complete(self, id_: RoundId, left: frozenset[int] | None = None) -> bool:
        """Return whether a round has all of its members at work: only then its workers make steps.

        `left`: those that have left, as one member's workers know it; they make steps with equal ones alone.
        """
        places = self.members.get(id_, {})
        at_work = [agent for agent in self.running.get(id_, {}) if agent.workers is not None]
        running = [agent for agent in at_work if agent.assigned and places.get(agent.assigned.rank) is agent]
        if left is None:
            left = max((agent.workers.left for agent in running if agent.workers), key=len, default=frozenset())
        agents = [agent for agent in running if agent.assigned is not None and agent.assigned.rank not in left]
        if len(agents) != self.sizes.get(id_, 0) - len(left):
            return False
        if any(agent.dead or agent.deleted for agent in agents):
            return False
        if any(agent.workers.state in (Workers.FAILED, Workers.HANG) for agent in agents if agent.workers):
            return False
        if any(agent.workers.left != left or agent.workers.held for agent in agents if agent.workers):
            return False
        return len(agents) == 1 or not any(agent.alone for agent in agents)

    def take_in(self, agent: "Agent", assigned: Assigned) -> bool:
        """Let all workers of a round take this member in before a step, if all of them can."""
        group = self.running.get(assigned.round, {})
        inside = [each for each in group if each.workers is not None and not each.workers.outside]
        host = next((each for each in inside if each.assigned is not None and each.assigned.rank == 0), None)
        if host is None or host.shrunk is None or host.workers is None:
            return False
        number, left = host.shrunk.number, host.workers.left
        if assigned.first_rank not in host.shrunk.entering or number + 1 != assigned.enters:
            return False
        at_rest = all(
            each.workers.state is Workers.RUN and (each.workers.left, each.workers.number) == (left, number)
            for each in inside
            if each.workers
        )
        if not at_rest or not self.complete(assigned.round, left) or agent.alone:
            return False
        for each in (*inside, agent):
            assert each.workers is not None
            each.workers.enter(assigned.enters, left - {assigned.rank})
        self.world.event("a member comes back without a restart")
        return True

    def one_group(self, begun: RoundId) -> None:
        """At most one round has all of its members at work when another one has begun.

        docs/elastic.md names the exceptions: a group of a former leader of which no member has reached the present one
        before it formed a round, and a group that is cut off as a whole and agreed to go on. It trains until
        fenceSeconds are over.
        """
        complete = [id_ for id_ in sorted(self.running) if self.running[id_] and self.complete(id_)]
        formed_at, unknown = self.formed.get(begun, (0.0, frozenset()))
        if self.world.clock.now - formed_at > STOP_SECONDS:
            unknown = frozenset()
        hidden = [
            id_
            for id_ in complete
            if id_ < begun and (id_ in unknown or self._is_unknown(id_) or self._is_cut_off(id_))
        ]
        if hidden and begun.term == self.world.leader.term:
            self.world.event("a group that the leader cannot know of, beside another one")
            complete = [id_ for id_ in complete if id_ not in hidden]
        names = " and ".join(str(id_) for id_ in complete)
        assert len(complete) <= 1, f"two groups train at the same time: rounds {names}"

    def _is_cut_off(self, id_: RoundId) -> bool:
        """Return whether the members agreed on a round and none of them can reach a leader."""
        return id_.attempt > 0 and all(agent.cut_off for agent in self.running[id_])

    def _is_unknown(self, id_: RoundId) -> bool:
        """Return whether no member of a round of a former leader has reached the present one."""
        leader = self.world.leader
        known = set() if leader.state is None else {member.incarnation for member in leader.state.members.values()}
        return id_.term < leader.term and not any(f"{agent.uid}/{agent.number}" in known for agent in self.running[id_])

    def stopped(self, agent: "Agent", id_: RoundId) -> None:
        """The workers of an agent are gone."""
        self.running.get(id_, {}).pop(agent, None)
        self.pull_down(agent, id_)

    def failed(self, id_: RoundId) -> None:
        """A worker failed of itself."""
        self.real.add(id_)

    def pull_down(self, agent: "Agent", id_: RoundId | None = None) -> None:
        """The workers of the others mostly notice, and fail."""
        if id_ is None:
            assert agent.assigned is not None
            id_ = agent.assigned.round
        clock = self.world.clock
        for peer in self.running.get(id_, {}):
            if peer is not agent and clock.random.random() < PULLED_DOWN:
                number = 0 if peer.workers is None else peer.workers.number
                clock.soon(0.02, 3.0, lambda peer=peer, n=number: self._pull(peer, id_, n))  # type: ignore[misc]

    def _pull(self, agent: "Agent", id_: RoundId, number: int) -> None:
        if agent.workers is not None and agent.workers.number > number:
            return  # its connections have ended before
        if agent.assigned is not None and agent.assigned.round == id_ and not agent.dead:
            agent.lose()
