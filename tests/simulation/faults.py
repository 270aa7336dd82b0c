"""What may happen to a job. Each fault has a name, hits one agent or the leader, and may last for some seconds."""

from collections.abc import Callable

from pytorchjob_operator.rounds.phases import Rendezvous

from .agent import FENCE_SECONDS, Agent
from .workers import REAL
from .world import World

FENCED_SECONDS = 7.5
"""By then an agent without any connection has noticed it (5 s, up to 1 s late) and killed its workers (0.5 s).
A message that was under way may arrive for up to a second."""
FOR_GOOD_SECONDS = 10_000.0
"""How long an agent is frozen that never wakes up."""
GROUP_SECONDS = 8.0
"""By then the members of a group have noticed that none of them has contact, and have killed their workers."""
ISLAND, LEASE = "a whole group is cut off", "the Lease is deleted"
TOGETHER = f"{ISLAND}: two or more members at work"
BEHIND_SECONDS = (0.0,) * 7 + (600.0,)
"""The seconds by which the clock of a new leader's node may be late."""
LONG = "ValueError: " + "\u2603 tensor mismatch " * 400
"""An error far longer than any field of a message."""


def _crash(world: World, agent: Agent, seconds: float) -> None:
    agent.fail(LONG if seconds > 6 else REAL)


def _hang(world: World, agent: Agent, seconds: float) -> None:
    if agent.workers is not None:
        agent.workers.hang()


def _end_agent(world: World, agent: Agent, seconds: float) -> None:
    agent.die(1, "crashed")


def _kill_pod(world: World, agent: Agent, seconds: float) -> None:
    world.remove_pod(agent.index)
    agent.die(137, "its pod is killed")
    world.add_pod(agent.index, agent.nproc)


def _kill_all(world: World, agent: Agent, seconds: float) -> None:
    for every in list(world.agents.values()):
        _kill_pod(world, every, seconds)


def _lose_node(world: World, agent: Agent, seconds: float) -> None:
    agent.die(137, "its node is lost", silent=True)
    world.clock.after(seconds, lambda: _replace(world, agent))


def _replace(world: World, agent: Agent) -> None:
    if world.agents.get(agent.index) is agent and world.outcome is None:
        world.remove_pod(agent.index)
        world.add_pod(agent.index, agent.nproc)


def _cut(world: World, agent: Agent, seconds: float) -> None:
    if agent.link is not None:
        agent.link.cut(late=seconds > 6)


def _cut_all(world: World, agent: Agent, seconds: float) -> None:
    for every in world.agents.values():
        _cut(world, every, seconds)


def _stall(world: World, agent: Agent, seconds: float) -> None:
    if agent.link is not None:
        agent.link.stall(seconds)
        world.silent_seconds += seconds


def _cut_off(world: World, agent: Agent, seconds: float) -> None:
    """Close the way to the coordinator alone."""
    agent.cut_off = True
    if agent.link is not None:
        agent.link.silent = True
    world.clock.after(seconds, lambda: _mend(agent))


def _mend(agent: Agent) -> None:
    agent.cut_off = agent.alone = agent.islanded = False
    agent.mended += 1


def _partition(world: World, agent: Agent, seconds: float) -> None:
    """Cut off from all others; sometimes replaced meanwhile, and back after that."""
    seconds *= 1.5
    _cut_off(world, agent, seconds)
    world.busy_until = max(world.busy_until, world.clock.now + seconds)
    assigned = agent.assigned
    if seconds > FENCED_SECONDS and agent.workers is not None and assigned is not None and assigned.size > 1:
        mended = agent.mended
        world.clock.after(FENCED_SECONDS, lambda: world.checks.fenced(agent, assigned, mended))
    agent.alone = True
    if seconds > 6:
        world.clock.after(5.0, lambda: _replace(world, agent))


def _island(world: World, agent: Agent, seconds: float) -> None:
    """Cut off all members of a round from the control plane, not from each other; most of them are replaced.

    The API server is often reached again before the coordinator is: it needs no connection that stays open.
    """
    members = [each for each in world.agents.values() if not each.dead]
    length = FENCE_SECONDS + GROUP_SECONDS + 2 * seconds
    later = world.clock.random.choice((0.0, 0.0, 6.0))
    world.busy_until = max(world.busy_until, world.clock.now + length + later)
    for each in members:
        _cut_off(world, each, length + later)
        each.islanded = True
        world.clock.after(length, lambda each=each: setattr(each, "islanded", False))  # type: ignore[misc]
        if seconds > 2 or each is not agent:
            world.clock.after(5.0 + seconds / 2, lambda each=each: _replace(world, each))  # type: ignore[misc]
    group = [(each, each.assigned.round) for each in members if each.workers is not None and each.assigned]
    if len(group) > 1 and len({id_ for _, id_ in group}) == 1:
        world.event(TOGETHER)
    before = [(each, each.mended) for each in members]

    def check() -> None:
        world.checks.island_fenced([each for each, mended in before if each.mended == mended])

    world.clock.after(FENCE_SECONDS + GROUP_SECONDS, check)


def _freeze(world: World, agent: Agent, seconds: float) -> None:
    agent.asleep = max(agent.asleep, world.clock.now + seconds)


def _freeze_for_good(world: World, agent: Agent, seconds: float) -> None:
    """One at a time: if most agents of a job are silent, the operator takes the network for the cause."""
    if not any(other.frozen_for_good for other in world.agents.values()):
        agent.frozen_for_good, agent.asleep = True, world.clock.now + FOR_GOOD_SECONDS


def _freeze_and_terminate(world: World, agent: Agent, seconds: float) -> None:
    """An agent is frozen for longer than its lease, while its pod is deleted: its workers train until it is killed."""
    _freeze(world, agent, seconds + 6.0)
    world.terminate(agent)


def _jump(world: World, agent: Agent, seconds: float) -> None:
    agent.jump(seconds * 5)


def _wall_jump(world: World, agent: Agent, seconds: float) -> None:
    agent.wall_offset += (seconds - 6) * 600
    _cut(world, agent, seconds)


def _drain(world: World, agent: Agent, seconds: float) -> None:
    world.terminate(agent)


def _new_leader(world: World, agent: Agent, seconds: float) -> None:
    world.new_leader()


def _lost_lease(world: World, agent: Agent, seconds: float) -> None:
    """Delete the Lease, and start the next leader on another node. Rarely that node has a wrong clock."""
    if world.leader.state is not None and isinstance(world.leader.state.phase, Rendezvous):
        world.event(f"{LEASE} while members wait for a round")
    world.new_leader(behind=world.clock.random.choice(BEHIND_SECONDS))
    if world.terms_went_back:
        world.event(f"{LEASE}, and terms go back with a clock")


def _leader_away(world: World, agent: Agent, seconds: float) -> None:
    leader = world.leader
    leader.die()
    world.clock.after(seconds, lambda: world.leader is leader and world.new_leader())


def _leader_asleep(world: World, agent: Agent, seconds: float) -> None:
    world.leader.asleep = world.clock.now + seconds
    world.silent_seconds += seconds


def _leader_jump(world: World, agent: Agent, seconds: float) -> None:
    world.leader.ahead += seconds * 5


def _scale_down(world: World, agent: Agent, seconds: float) -> None:
    if len(world.pods) > world.policy.min_members and agent.index == max(world.pods):
        world.terminate(agent)


def _scale_up(world: World, agent: Agent, seconds: float) -> None:
    free = set(range(5)) - set(world.pods) - set(world.agents)
    if free and world.policy.elastic:
        world.add_pod(min(free), 2)


FAULTS: dict[str, Callable[[World, Agent, float], None]] = {
    "a worker fails": _crash,
    "the workers hang": _hang,
    "an agent ends": _end_agent,
    "a pod is killed and replaced": _kill_pod,
    "all pods are killed and replaced": _kill_all,
    "a node is lost": _lose_node,
    "a connection breaks": _cut,
    "all connections break": _cut_all,
    "a connection stalls": _stall,
    "the way to the coordinator is closed": _cut_off,
    "a pod is cut off from all others": _partition,
    ISLAND: _island,
    "an agent is frozen": _freeze,
    "an agent is frozen for good": _freeze_for_good,
    "the pod of a frozen agent is asked to go": _freeze_and_terminate,
    "an agent's clock jumps": _jump,
    "a wall clock jumps": _wall_jump,
    "a pod is asked to go": _drain,
    "another leader": _new_leader,
    LEASE: _lost_lease,
    "no operator leads": _leader_away,
    "the leader is frozen": _leader_asleep,
    "the leader's clock jumps": _leader_jump,
    "scale down": _scale_down,
    "scale up": _scale_up,
}
LEADERS = ("another leader", LEASE, "no operator leads", "the leader is frozen")
"""Faults of the leader alone."""
ENDINGS = (
    "a worker fails",
    "the workers hang",
    "an agent ends",
    "a pod is killed and replaced",
    "a node is lost",
    "a pod is cut off from all others",
    "an agent is frozen",
    "a pod is asked to go",
    "the pod of a frozen agent is asked to go",
)
"""Faults that end a round."""
APART = (
    "a connection breaks",
    "all connections break",
    "a connection stalls",
    "the way to the coordinator is closed",
    "a pod is cut off from all others",
    "an agent is frozen",
)
"""Faults that separate processes for a while."""
QUIET = (
    "a connection breaks",
    "all connections break",
    "a connection stalls",
    "a wall clock jumps",
    "another leader",
    LEASE,
    "no operator leads",
    "the leader is frozen",
    "the leader's clock jumps",
    "an agent's clock jumps",
)
"""Faults after which no worker has to stop; a jump of an agent's clock only if it hears others, so it is last."""
