"""What is seen of a simulated job, and what has to be true of it at every moment."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_operator.rounds.state import Decision, Send
from pytorchjob_operator.rounds.values import EndReason, Policy
from tests.rounds.ends import end_of
from tests.rounds.model_agent import ECHO, REAL, Agent

if TYPE_CHECKING:
    from tests.rounds.simulated import Clock, Link


class Notes:
    """Who was told what, who runs where, what has failed."""

    def __init__(self, clock: "Clock") -> None:
        self.clock = clock
        self.rounds: dict[RoundId, list[tuple[Agent, Assigned]]] = {}
        self.running: dict[RoundId, dict[Agent, None]] = defaultdict(dict)
        """In the order in which they began: what follows from a seed is the same each time."""
        self.real: set[RoundId] = set()
        """Rounds in which a worker failed of itself."""
        self.broken: set[RoundId] = set()
        """Rounds of which a member was lost."""
        self.news: list[str] = []

    # What the coordinator decided.

    def decided(self, decision: Decision, links: Mapping[int, "Link"]) -> None:
        told: dict[RoundId, list[tuple[Agent, Assigned]]] = defaultdict(list)
        for command in decision.commands:
            if isinstance(command, Send) and isinstance(command.message, Assigned):
                told[command.message.round].append((links[command.connection].agent, command.message))
        for id_, group in told.items():
            assert id_ not in self.rounds, f"round {id_} is opened twice"
            self.rounds[id_] = group
            _consistent([one for _, one in group], [agent for agent, _ in group], decision.state.policy)
        end = end_of(decision.state)
        if end is not None and end.reason is EndReason.SUCCEEDED:
            self._all_done(decision)
        self.news += [f"{self.clock.now:.2f} {one.reason}: {one.message}" for one in decision.events]
        round_ = decision.state.round
        if round_ is not None:
            known = [index for index in round_.ranks if index is not None]
            assert len(known) == len(set(known)), f"a member with two ranks: {round_}"
        assert decision.state.restarts <= len(self.real), (
            f"{decision.state.restarts} restarts are counted, workers failed of themselves in {sorted(self.real)}"
        )

    def _all_done(self, decision: Decision) -> None:
        round_ = decision.state.round
        ids = [round_.id] if round_ is not None else list(self.rounds)  # a new leader may not have met anybody of it
        groups = [self.rounds[id_] for id_ in ids]
        full = [group for group in groups if len(group) == group[0][1].size]
        assert any(all(agent.done for agent, _ in group) for group in full), "success although somebody is not done"

    # What agents did.

    def began(self, agent: Agent, assigned: Assigned) -> None:
        assert not agent.busy, f"replica {agent.index} is assigned to {assigned.round} while its workers run"
        assert agent.round is None or assigned.round > agent.round
        base = self.rounds.setdefault(assigned.round, [])
        if all(one is not agent for one, _ in base):
            base.append((agent, assigned))  # agreed on without the coordinator
        self.running[assigned.round][agent] = None
        self.one_group()

    def stopped(self, agent: Agent) -> None:
        """Its workers are gone: those of the others in the round mostly notice, and fail."""
        id_ = agent.round
        if id_ is None:
            return
        self.running[id_].pop(agent, None)
        if agent.dead:
            self.broken.add(id_)
        for peer in tuple(self.running[id_]):
            if peer.running and self.clock.random.random() < 0.7:
                self.clock.soon(0.02, 3.0, lambda peer=peer: peer.round == id_ and peer.fail(ECHO))  # type: ignore[misc]

    def failed(self, agent: Agent, message: str) -> None:
        if message == REAL and agent.round is not None:
            self.real.add(agent.round)

    # What members know of each other.

    def members(self, id_: RoundId) -> list[Agent]:
        return [agent for agent, _ in self.rounds[id_]]

    def heard(self, agent: Agent) -> tuple[int, ...]:
        """The ranks of the peers that are seen through the round's store, while its host is there."""
        if agent.assigned is None or not agent.busy or agent.alone:
            return ()
        group = {assigned.rank: one for one, assigned in self.rounds[agent.assigned.round]}
        seen = [rank for rank, one in group.items() if one is not agent and self._seen(one, agent)]
        host = group.get(0)
        return tuple(seen) if host is agent or 0 in seen else ()

    def _seen(self, one: Agent, by: Agent) -> bool:
        return one.round == by.round and one.busy and not one.dead and not one.alone and one.asleep <= self.clock.now

    def can_agree(self, agent: Agent) -> bool:
        """Whether all members of the round wait for one without the coordinator."""
        assert agent.assigned is not None
        group = self.members(agent.assigned.round)
        if len(group) < agent.assigned.size:
            return False
        return all(
            one.offered and one.round == agent.round and not one.dead and not one.alone and not one.busy
            for one in group
        )

    # What has to be true.

    def one_group(self) -> None:
        """At most one round has all of its members at work: only such a group can do a step."""
        complete = []
        for id_, agents in self.running.items():
            group = self.rounds[id_]
            if len(agents) == group[0][1].size and not any(one.dead or one.deleted for one in agents):
                apart = {one.alone for one in agents}
                if len(apart) == 1 or len(agents) == 1:
                    complete.append(id_)
        assert len(complete) <= 1, f"two groups train at once: {sorted(complete)}"


def _consistent(told: list[Assigned], agents: list[Agent], policy: Policy) -> None:
    """All members were told the same round, and places that fit together."""
    first = told[0]
    assert len({(one.size, one.world_size, one.restarts, one.master_address, one.master_port) for one in told}) == 1
    assert [one.rank for one in told] == list(range(first.size)) == list(range(len(told)))
    assert [one.index for one in agents] == sorted({one.index for one in agents}), "ranks follow the indices"
    assert policy.min_members <= first.size <= policy.max_members
    ranks = 0
    for one, agent in zip(told, agents, strict=True):
        assert one.first_rank == ranks
        ranks += agent.nproc
    assert first.world_size == ranks
    assert (first.master_address, first.master_port) == (f"10.0.0.{agents[0].index}", agents[0].port)
