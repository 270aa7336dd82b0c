"""One schedule: what an integer makes of a job, and whether the job comes back to work.

There are four kinds: `chaos` (any faults), `budget` (failures one by one, and faults that stop no worker), `finish`
(the workers end well while faults happen that stop no worker) and `twin` (two agents in one pod).
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from pytorchjob_agent.rendezvous.decide import Workers
from pytorchjob_operator.rounds.phases import Ended, Running
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import End, EndReason, Policy, TrainingReason

from .agent import Agent
from .faults import FAULTS, LEADERS, QUIET
from .workers import REAL
from .world import World

STABLE_SECONDS = 7.0
"""How long a job has to be at work to count as settled: longer than the lease and its aftermath."""
SETTLE_SECONDS = 180.0
"""Within this time after the last fault the job is at work: the longest pause is a minute, a last call 30 s."""
LASTING = 13.0
STEP = 0.5


@dataclass(frozen=True)
class Failure:
    """A schedule whose job broke a promise."""

    seed: int
    problem: str


def run(seed: int, log: Callable[[str], None] | None = None) -> Failure | None:
    """Run one schedule; return what was wrong."""
    random = Random(seed)
    kind = random.choice((_chaos, _chaos, _chaos, _chaos, _budget, _budget, _finish, _twin))
    try:
        kind(random, log)
    except AssertionError as error:
        return Failure(seed, str(error) or "assertion")
    return None


def _world(random: Random, log: Callable[[str], None] | None, restarts: tuple[int | None, ...]) -> World:
    nprocs = [random.choice((1, 1, 2, 4)) for _ in range(random.choice((2, 2, 3, 3, 4, 5)))]
    most = random.randint(2, len(nprocs))
    elastic = random.random() < 0.5
    least = random.randint(1, most) if elastic else most
    policy = Policy(least, most, max_restarts=random.choice(restarts), last_call_timeout=random.choice((3.0, 30.0)))
    world = World(random, policy, nprocs if elastic else nprocs[:most], log)
    world.log("world", f"{policy} with {len(world.pods)} pods")
    return world


def _chaos(random: Random, log: Callable[[str], None] | None) -> None:
    world = _world(random, log, (None, None, 0, 1, 2))
    if random.random() < 0.1:
        world.twice = 0.2
    world.delay = random.choice((0.03, 0.03, 0.3, 1.0))
    if random.random() < 0.8:
        settle(world, 40.0, 0.0)
    else:
        world.clock.run(world.clock.now + 4 * random.random())
    names = random.sample(list(FAULTS), random.choice((1, 2, 3, 4)))  # a few kinds meet each other more often
    for _ in range(random.choice((1, 2, 3, 4, 5, 6))):
        world.clock.run(world.clock.now + 6 * random.random() ** 2)
        fault(world, random, random.choice(names))
    at_work_again(world)


def _budget(random: Random, log: Callable[[str], None] | None) -> None:
    """Failures alone, one in each round, with faults between them that stop no worker: the count is exact.

    Half of the failures meet a change of the leader before the next round has begun.
    """
    world = _world(random, log, (None, None, 0, 1, 2))
    for failures in range(1, 1 + random.choice((1, 2, 2, 3, 5))):
        _settled(world)
        if _ended(world):
            break
        running = [agent for agent in world.agents.values() if agent.workers is not None]
        random.choice(running).fail(REAL)
        if random.random() < 0.5:
            world.clock.run(world.clock.now + 3.0 * random.random())
            fault(world, random, random.choice(LEADERS))
        _settled(world)
        _counted(world, failures)
        if random.random() < 0.6 and not _ended(world):
            before, name = world.leader.state, random.choice(QUIET)
            fault(world, random, name)
            _settled(world)
            _counted(world, failures)
            _undisturbed(world, before, name)
    at_work_again(world)


def _counted(world: World, failures: int) -> None:
    allowed = world.policy.max_restarts
    if _ended(world):
        assert allowed is not None, "the job without a limit of restarts ended"
        assert failures > allowed, f"the job ended after {failures} failures; {allowed} restarts are allowed"
        return
    state = world.leader.state
    assert state is not None
    agreed = sum(1 for id_ in world.checks.members if id_.attempt)  # without a coordinator no budget ends a job
    assert allowed is None or failures <= allowed + agreed, (
        f"{failures} failures, {allowed} restarts allowed: the job goes on"
    )
    assert state.restarts == failures, f"{state.restarts} restarts are counted after {failures} failures"
    counts = {agent.assigned.restarts for agent in world.agents.values() if agent.workers and agent.assigned}
    assert counts == {failures}, f"workers have the restart counts {counts} after {failures} failures"


def _undisturbed(world: World, before: JobState | None, name: str) -> None:
    """A leader that was frozen, or whose clock has jumped, ends no round."""
    after = world.leader.state
    if name in ("the leader is frozen", "the leader's clock jumps", "a wall clock jumps") and before and after:
        assert before.round is not None
        assert after.round is not None
        assert before.round.id == after.round.id, f"{name}: round {before.round.id} ended, nothing else had happened"


def _finish(random: Random, log: Callable[[str], None] | None) -> None:
    world = _world(random, log, (None, 0))
    _settled(world)
    for agent in list(world.agents.values()):
        if agent.workers is not None:
            world.clock.soon(0.0, 8.0, agent.workers.finish)
    for _ in range(random.choice((0, 1, 1, 2))):
        world.clock.run(world.clock.now + 5 * random.random())
        fault(world, random, random.choice(QUIET[:-1]))
    world.clock.run(max(world.clock.now, world.busy_until))
    if world.leader.dead:
        world.new_leader()
    deadline = world.clock.now + 60.0
    while world.clock.now < deadline and any(not agent.dead for agent in world.agents.values()):
        world.clock.run(world.clock.now + STEP)
    codes = {agent.index: (agent.code, agent.reason) for agent in world.agents.values()}
    assert all(code == 0 for code, _ in codes.values()), f"all workers ended well, but the agents: {codes}"
    assert not world.checks.real, "nothing has failed, but the members went on by themselves"


def _twin(random: Random, log: Callable[[str], None] | None) -> None:
    """A second agent in a pod is refused, the job reports it, and the first one trains on."""
    world = _world(random, log, (None,))
    _settled(world)
    before, first = world.leader.state, random.choice([agent for agent in world.agents.values() if agent.link])
    twin = Agent(world, first.index, first.uid, first.nproc)
    world.old.append(twin)
    world.clock.run(world.clock.now + 5.0)
    after = world.leader.state
    assert before is not None
    assert before.round is not None
    assert after is not None
    assert after.round is not None
    assert TrainingReason.DUPLICATE_REPLICA in after.problems, "the job does not report the second agent"
    assert after.round.id == before.round.id, f"a second agent ended round {before.round.id}"
    twin.die(1, "is stopped")
    at_work_again(world)


def fault(world: World, random: Random, name: str) -> None:
    """Let one thing happen now."""
    seconds, index = random.randint(0, 24) / 2, random.randint(0, 4)
    agent = world.agents.get(index) or next(iter(world.agents.values()), None)
    if agent is None or agent.dead:
        return
    world.log("fault", f"{name} (replica {agent.index}, {seconds:g} s)")
    world.faults += 1
    world.busy_until = max(world.busy_until, world.clock.now + seconds)
    FAULTS[name](world, agent, seconds)


def _ended(world: World) -> bool:
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
        if _ended(world) and all(agent.frozen_for_good for agent in world.living()):
            return ""
        problem = unsettled(world)
        if problem:
            since = None
        elif since is None:
            since = clock.now
        if since is not None and clock.now - since >= stable:
            return ""
    return problem or "it does not become stable"


def _settled(world: World) -> None:
    problem = settle(world)
    assert not problem, f"{SETTLE_SECONDS:g} s after the last fault: {problem}"


def at_work_again(world: World) -> None:
    """Check that the job comes back to work, or has ended for a good reason."""
    _settled(world)
    state = world.leader.state
    if state is not None and isinstance(state.phase, Ended):
        _good_end(world, state.phase.end)


def _good_end(world: World, end: End) -> None:
    allowed = world.policy.max_restarts
    if end.reason is EndReason.BUDGET:
        assert allowed is not None, "the budget ended a job without one"
        assert len(world.checks.real) > allowed, (
            f"{allowed} restarts ended a job with {len(world.checks.real)} failures"
        )
    else:
        assert end.reason in (EndReason.SAME_ERROR, EndReason.NO_PROGRESS), f"the job ended: {end}"


def unsettled(world: World) -> str:
    """Return what keeps the job from being at work; empty if it is."""
    state = world.leader.state
    if _ended(world):
        living = [agent for agent in world.living() if not (agent.deleted or agent.frozen_for_good)]
        return f"the job has ended, and {living} live on" if living else ""
    if state is None:
        return "the operator has not passed on the job"
    living = {agent.index: agent for agent in world.agents.values() if not agent.dead}
    if set(living) != set(world.pods):
        return f"agents {sorted(living)} live, but the pods are {sorted(world.pods)}"
    frozen = [agent for agent in living.values() if agent.frozen_for_good]
    if frozen and (state.round is None or any(agent.assigned is None for agent in frozen)):
        return ""  # no member that this leader knows was with it: its pod may still be starting
    if not isinstance(state.phase, Running) or state.round is None:
        return f"no round runs: {state.phase}"
    running = {i for i, a in living.items() if a.workers and a.workers.state is Workers.RUN and a.assigned}
    running = {index for index in running if living[index].assigned.round == state.round.id}  # type: ignore[union-attr]
    if running != {index for index in state.round.ranks if index is not None}:
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
    if old:
        return f"{old} still train, and were replaced"
    silent = [agent for agent in awake_now.values() if agent.link is None]
    return f"{silent} have no connection" if silent else ""
