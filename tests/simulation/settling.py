"""Whether a job comes back to work after the last fault, and what keeps it from that."""

from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_agent.rendezvous.decide import Workers
from pytorchjob_operator.rounds.phases import Ended, Running
from pytorchjob_operator.rounds.values import End

from .agent import Agent
from .world import World

STABLE_SECONDS = 7.0
"""How long a job has to be at work to count as settled: longer than the lease and its aftermath."""
SETTLE_SECONDS = 180.0
"""Within this time after the last fault the job is at work: the longest pause is a minute, a last call 30 s."""
STEP = 0.5


def ended(world: World) -> bool:
    """Return whether the job has ended, as the operator or its coordinator knows."""
    state = world.leader.state
    return world.outcome is not None or (state is not None and isinstance(state.phase, Ended))


def settle(world: World, limit: float = SETTLE_SECONDS, stable: float = STABLE_SECONDS) -> str:
    """Run until the job is at work for a while, or has ended; return what is missing if it does not come to that."""
    clock = world.clock
    clock.run(max(clock.now, world.busy_until))
    if world.leader.dead:
        world.new_leader()
    deadline, since = clock.now + limit, None
    problem = ""
    while clock.now < deadline:
        clock.run(clock.now + STEP)
        if ended(world) and all(agent.frozen_for_good for agent in world.living()):
            return ""
        problem = unsettled(world)
        if problem:
            since = None
        elif since is None:
            since = clock.now
        if since is not None and clock.now - since >= stable:
            return ""
    return problem or "it does not become stable"


def settled(world: World) -> None:
    """Check that the job comes to rest: at work, or ended."""
    problem = settle(world)
    assert not problem, f"{SETTLE_SECONDS:g} s after the last fault: {problem}"


def at_work_again(world: World) -> None:
    """Check that the job comes back to work, or has ended for a good reason."""
    settled(world)
    state = world.leader.state
    if state is not None and isinstance(state.phase, Ended):
        _good_end(world, state.phase.end)


def _good_end(world: World, end: End) -> None:
    allowed = world.policy.max_restarts
    if end.reason is EndReason.BUDGET:
        assert allowed is not None, "the budget ended a job without one"
        failures = len(world.checks.real) + len(world.checks.shrinks)
        assert failures > allowed, f"{allowed} restarts ended a job with {failures} failures"
    else:
        assert end.reason in (EndReason.SAME_ERROR, EndReason.NO_PROGRESS), f"the job ended: {end}"


def unsettled(world: World) -> str:
    """Return what keeps the job from being at work; empty if it is."""
    state = world.leader.state
    if ended(world):
        living = [agent for agent in world.living() if not (agent.deleted or agent.frozen_for_good)]
        return f"the job has ended, and {living} live on" if living else ""
    if state is None:
        return "the operator has not passed on the job"
    living = {agent.index: agent for agent in world.agents.values() if not agent.dead}
    if set(living) != set(world.pods):
        return f"agents {sorted(living)} live, but the pods are {sorted(world.pods)}"
    frozen = [agent for agent in living.values() if agent.frozen_for_good]
    if frozen and (state.round is None or any(_is_left_out(world, agent) for agent in frozen)):
        return ""  # no member that this leader knows was with it: its pod may still be starting
    if not isinstance(state.phase, Running) or state.round is None:
        return f"no round runs: {state.phase}"
    running = {i for i, a in living.items() if a.workers and a.workers.state is Workers.RUN and a.assigned}
    running = {index for index in running if living[index].assigned.round == state.round.id}  # type: ignore[union-attr]
    if running != state.round.members:
        return f"round {state.round.id} has members {state.round.ranks}, but workers run in {sorted(running)}"
    if None in state.round.ranks:
        return "the leader does not know all members"
    if len(running) != min(len(living), world.policy.max_members):
        return f"{len(running)} of {len(living)} members take part, {world.policy.max_members} may"
    awake_now = {index: agent for index, agent in living.items() if not agent.frozen_for_good}
    mute = [agent for index, agent in awake_now.items() if index not in running and not agent.reason]
    if mute:
        return f"{mute} wait and do not know for what"
    awake = [agent for agent in world.old if not agent.dead and agent.asleep <= world.clock.now]
    old = [agent for agent in awake if agent.workers is not None]
    if old and not world.terms_went_back:  # where pods have tokens, a token's time shows it: app/pod_identity
        return f"{old} still train, and were replaced"
    silent = [agent for agent in awake_now.values() if agent.link is None]
    return f"{silent} have no connection" if silent else ""


def _is_left_out(world: World, agent: Agent) -> bool:
    """Return whether nobody can tell the present leader of it: the others had gone on without it, or are gone."""
    if agent.assigned is None:
        return True
    before = [id_ for id_ in world.checks.members if id_.term < world.leader.term]
    others = [each for each in world.checks.members[agent.assigned.round].values() if each is not agent]
    return (bool(before) and agent.assigned.round < max(before)) or all(each.dead for each in others)
