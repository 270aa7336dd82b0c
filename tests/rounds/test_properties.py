"""Whatever happens to a job, in whatever order: one group at a time, an exact budget, and progress or a reason."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.values import EndReason, Policy
from tests.rounds.ends import end_of
from tests.rounds.model_agent import REAL, Agent
from tests.rounds.simulated import World

EXAMPLES = int(os.environ.get("ROUNDS_EXAMPLES", "40"))
"""How many lives of a job; a night's run takes thousands."""
SETTLED = 150.0
"""Simulated seconds after the last fault by which all is well: the longest pause is a minute, a first call 30 s."""

LASTING = 13.0
"""Simulated seconds after which whatever lasts for a while is over."""


@dataclass(frozen=True)
class Fault:
    """What happens, to whom, and how long after the one before."""

    name: str
    index: int
    pause: float
    seconds: float


def _crash(world: World, agent: Agent, fault: Fault) -> None:
    agent.fail(REAL)


def _restart_agent(world: World, agent: Agent, fault: Fault) -> None:
    agent.die(1)


def _kill_pod(world: World, agent: Agent, fault: Fault) -> None:
    world.remove_pod(agent.index)
    agent.die(137)
    world.add_pod(agent.index, agent.nproc)


def _lose_node(world: World, agent: Agent, fault: Fault) -> None:
    agent.die(137, silent=True)
    world.clock.after(fault.seconds, lambda: _replace(world, agent))


def _replace(world: World, agent: Agent) -> None:
    if world.agents.get(agent.index) is agent:
        world.remove_pod(agent.index)
        world.add_pod(agent.index, agent.nproc)


def _cut_link(world: World, agent: Agent, fault: Fault) -> None:
    if agent.link is not None:
        agent.link.cut()


def _stall_link(world: World, agent: Agent, fault: Fault) -> None:
    if agent.link is not None:
        agent.link.stall(fault.seconds)


def _cut_off(world: World, agent: Agent, fault: Fault) -> None:
    """The way to the coordinator alone is closed."""
    agent.cut_off = True
    if agent.link is not None:
        agent.link.dumb = True
    world.clock.after(fault.seconds, lambda: setattr(agent, "cut_off", False))


def _partition(world: World, agent: Agent, fault: Fault) -> None:
    """Cut off from everybody; sometimes replaced meanwhile, and back after that."""
    _cut_off(world, agent, fault)
    agent.alone = True
    world.clock.after(fault.seconds, lambda: setattr(agent, "alone", False))
    if fault.seconds > 6:
        world.clock.after(5.0, lambda: _replace(world, agent))


def _freeze(world: World, agent: Agent, fault: Fault) -> None:
    agent.asleep = world.clock.now + fault.seconds


def _drain(world: World, agent: Agent, fault: Fault) -> None:
    agent.drain()


def _twin(world: World, agent: Agent, fault: Fault) -> None:
    """Another agent of the same pod, once the coordinator hears the first one."""
    world.run(LASTING)
    if agent.dead or agent.link is None or world.coordinator.dead:
        return
    world.old.append(twin := Agent(world, agent.index, agent.uid, agent.nproc))
    world.clock.after(fault.seconds, lambda: twin.die(1))


def _new_coordinator(world: World, agent: Agent, fault: Fault) -> None:
    world.new_coordinator()


def _new_installation(world: World, agent: Agent, fault: Fault) -> None:
    """The Lease is gone: the epochs of those who lead from now on are earlier ones, which nobody has had."""
    world.new_coordinator(world.coordinator.term - 1000)


def _coordinator_away(world: World, agent: Agent, fault: Fault) -> None:
    world.coordinator.die()
    world.clock.after(fault.seconds, lambda: world.coordinator.dead and world.new_coordinator())


def _coordinator_asleep(world: World, agent: Agent, fault: Fault) -> None:
    world.coordinator.asleep = world.clock.now + fault.seconds


def _scale_down(world: World, agent: Agent, fault: Fault) -> None:
    if len(world.pods) > world.policy.min_members and agent.index == max(world.pods):
        agent.drain()
        world.pods.pop(agent.index)
        world.tell_coordinator(0.0, 1.0)


def _scale_up(world: World, agent: Agent, fault: Fault) -> None:
    if len(world.pods) < 5 and world.policy.elastic:
        world.add_pod(min(set(range(5)) - set(world.pods)), 2)


FAULTS: dict[str, Callable[[World, Agent, Fault], None]] = {
    "a worker fails": _crash,
    "a pod is killed and replaced": _kill_pod,
    "an agent ends": _restart_agent,
    "a node is lost": _lose_node,
    "a connection breaks": _cut_link,
    "a connection stalls": _stall_link,
    "the way to the coordinator is closed": _cut_off,
    "a pod is cut off from everybody": _partition,
    "an agent is frozen": _freeze,
    "a pod is asked to go": _drain,
    "two agents in one pod": _twin,
    "another leader": _new_coordinator,
    "the operator is installed anew": _new_installation,
    "nobody leads": _coordinator_away,
    "the coordinator stands still": _coordinator_asleep,
    "scale down": _scale_down,
    "scale up": _scale_up,
}

UNHEARD = {
    "a connection breaks",
    "a connection stalls",
    "the way to the coordinator is closed",
    "a pod is cut off from everybody",
    "an agent is frozen",
    "another leader",
    "the operator is installed anew",
    "nobody leads",
    "the coordinator stands still",
}
"""After these an agent is not heard for a moment, and nobody can tell a second one of its pod from one started anew."""

FAULT = st.builds(
    Fault,
    name=st.sampled_from(sorted(FAULTS)),
    index=st.integers(0, 4),
    pause=st.integers(0, 60).map(lambda tenths: tenths / 10),
    seconds=st.integers(0, 24).map(lambda halves: halves / 2),
)


@st.composite
def policies(draw: st.DrawFn) -> tuple[Policy, list[int]]:
    """The size of a job: pods by their number of workers, fixed or elastic, with or without spares."""
    nprocs = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=5))
    most = draw(st.integers(2, len(nprocs)))
    elastic = draw(st.booleans())
    least = draw(st.integers(1, most)) if elastic else most
    restarts = draw(st.sampled_from([None, None, 0, 1, 2]))
    return Policy(least, most, max_restarts=restarts), nprocs if elastic else nprocs[:most]


def lead(world: World, faults: Sequence[Fault]) -> None:
    """Let the job begin, and let everything happen to it."""
    world.run(20.0 if faults and faults[0].index % 2 else 4.0)
    for fault in faults:
        world.run(fault.pause)
        if fault.name in UNHEARD and any(not one.dead and not one.deleted for one in world.old):
            world.run(LASTING)
        agent = world.agents.get(fault.index % 5)
        if agent is not None and not agent.dead:
            FAULTS[fault.name](world, agent, fault)
    world.run(LASTING)
    if world.coordinator.dead:
        world.new_coordinator()


def at_work(world: World) -> None:
    """Everybody who can trains in one round, and whoever waits was told why."""
    state = world.coordinator.state
    assert state is not None
    if end_of(state) is not None:
        allowed = world.policy.max_restarts
        if end_of(state).reason is EndReason.BUDGET:
            assert allowed is not None
            assert len(world.notes.real) > allowed
        else:
            assert end_of(state).reason in (EndReason.SAME_ERROR, EndReason.NO_PROGRESS), end_of(state)
        assert not [one for one in world.living() if not one.deleted], "everybody was told"
        return
    living = {one.index: one for one in world.agents.values() if not one.dead}
    assert set(living) == set(world.pods), "a pod is dead for ever"
    assert state.round is not None
    assert isinstance(state.phase, Running), state.phase
    running = {index for index, one in living.items() if one.running and one.round == state.round.id}
    assert running == set(state.round.ranks), f"{state.round} but {sorted(running)} run"
    assert len(running) == min(len(living), world.policy.max_members)
    for index, one in living.items():
        assert index in running or one.told, f"replica {index} waits and was not told for what"
    assert not [one for one in world.old if one.running and not one.dead], "an old pod still trains"


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**16), policies(), st.lists(FAULT, max_size=8))
def test_a_job_comes_back_to_work(seed: int, shape: tuple[Policy, list[int]], faults: list[Fault]) -> None:
    policy, nprocs = shape
    world = World(seed, policy, nprocs)
    lead(world, faults)
    world.run(SETTLED)
    at_work(world)


QUIET = ("a connection breaks", "a connection stalls", "another leader", "the coordinator stands still", "nobody leads")


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**16), policies(), st.lists(FAULT.filter(lambda one: one.name in QUIET), max_size=3))
def test_it_is_done_when_all_are_done(seed: int, shape: tuple[Policy, list[int]], faults: list[Fault]) -> None:
    world = World(seed, *shape)
    world.run(SETTLED)
    at_work(world)
    group = [one for one in world.agents.values() if one.running]
    for one in group:
        world.clock.soon(0.0, 10.0, one.finish)
    lead(world, faults)
    world.run(60.0)
    assert all(one.code == 0 for one in world.agents.values()), [(one.code, one.told) for one in world.agents.values()]
    assert not world.notes.real


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**16), policies(), st.lists(st.integers(0, 4), max_size=4))
def test_so_many_failures_and_not_one_more(seed: int, shape: tuple[Policy, list[int]], who: list[int]) -> None:
    """Failures alone, one in each round: the budget is exact."""
    policy, nprocs = shape
    world = World(seed, policy, nprocs)
    for index in who:
        world.run(80.0)
        state = world.coordinator.state
        assert state is not None
        if end_of(state) is None:
            group = [one for one in world.agents.values() if one.running]
            group[index % len(group)].fail(REAL)
    world.run(80.0)
    state = world.coordinator.state
    assert state is not None
    assert (end_of(state) is not None) == (policy.max_restarts is not None and len(who) > policy.max_restarts), end_of(
        state
    )
    at_work(world)
