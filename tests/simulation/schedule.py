"""One schedule: what an integer makes of a job, and whether the job comes back to work.

There are several kinds, and a seed chooses one by weight:

- `chaos`: any faults at any time;
- `turns`: faults in the moment in which a round begins or ends;
- `islands`: a group is cut off together, is replaced, and is reached again little by little;
- `budget`: failures one by one, and faults that stop no worker;
- `finish`: the workers end well while faults happen that stop no worker;
- `twin`: two agents in one pod.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import Policy

from .agent import Agent
from .faults import APART, ENDINGS, FAULTS, ISLAND, LEADERS, QUIET
from .settling import STEP, at_work_again, ended, settle, settled
from .workers import REAL
from .world import World

TURN_SECONDS = 12.0
"""How long a schedule waits for a round to end or to begin: longer than the lease and than a group takes to stop."""
TURN_STEP = 0.02
SURVIVING = 5
"""In one of this number of schedules a round loses members without which its workers go on."""
THREATENED = 7
"""In one of this number of schedules pods are threatened now and then, and the workers save while they train on."""


@dataclass(frozen=True)
class Failure:
    """A schedule whose job broke a promise."""

    seed: int
    problem: str


@dataclass(frozen=True)
class Course:
    """What a schedule was made from, and what happened in it."""

    random: Random
    log: Callable[[str], None] | None = None
    events: Counter[str] = field(default_factory=Counter)
    """How often each thing happened: the kind of the schedule, and its faults."""
    threats: Random | None = None
    """Draws which pods are threatened, beside everything else that happens. None: none of them is."""


def run(seed: int, log: Callable[[str], None] | None = None) -> Failure | None:
    """Run one schedule; return what was wrong."""
    return observe(seed, log)[0]


def observe(seed: int, log: Callable[[str], None] | None = None) -> tuple[Failure | None, Counter[str]]:
    """Run one schedule; return what was wrong, and how often each thing happened."""
    course = Course(Random(seed), log, threats=Random(seed) if seed % THREATENED == 1 else None)
    kind = _survivors if seed % SURVIVING == 3 else course.random.choices(list(KINDS), list(KINDS.values()))[0]
    course.events[f"schedule: {kind.__name__.strip('_')}"] += 1
    try:
        kind(course)
    except AssertionError as error:
        return Failure(seed, str(error) or "assertion"), course.events
    return None, course.events


def _world(course: Course, restarts: tuple[int | None, ...], *, survives: bool = False) -> World:
    random = course.random
    nprocs = [random.choice((1, 1, 2, 4)) for _ in range(random.choice((2, 2, 3, 3, 4, 5)))]
    most = random.randint(2, len(nprocs))
    elastic = random.random() < 0.5 or survives
    least = random.randint(1, most) if elastic else most
    policy = Policy(least, most, max_restarts=random.choice(restarts), last_call_timeout=random.choice((3.0, 30.0)))
    policy = replace(policy, survive=elastic and (survives or sum(nprocs) % 2 == 1), rejoin_within=10.0)
    world = World(random, policy, nprocs if elastic else nprocs[:most], course.log)
    world.events = course.events
    if course.threats is not None:
        world.threaten(course.threats)
    world.log("world", f"{policy} with {len(world.pods)} pods")
    return world


def _chaos(course: Course) -> None:
    world, random = _world(course, (None, None, 0, 1, 2)), course.random
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


def _turns(course: Course) -> None:
    """Something ends a round, and faults that separate processes meet its end, or the beginning of the next one."""
    world, random = _world(course, (None,)), course.random
    world.delay = random.choice((0.03, 0.3, 0.3, 1.0))
    for _ in range(random.choice((1, 1, 2))):
        if random.random() < 0.8:
            settle(world, 40.0, 0.0)
            fault(world, random, random.choice(ENDINGS))
        _turn(world, begins=random.random() < 0.5)
        for _ in range(random.choice((1, 2, 2, 3))):
            fault(world, random, random.choice(random.choice((APART, LEADERS))))
            world.clock.run(world.clock.now + 2.0 * random.random() ** 3)
    at_work_again(world)


def _turn(world: World, *, begins: bool) -> None:
    """Run until the leader ends the present round, or until it begins another one."""
    clock, deadline = world.clock, world.clock.now + TURN_SECONDS
    before = None if world.leader.state is None else world.leader.state.round
    while clock.now < deadline:
        state = world.leader.state
        runs = state is not None and isinstance(state.phase, Running)
        other = state is not None and state.round is not None and (before is None or state.round.id != before.id)
        if (runs and other) if begins else (before is not None and not runs):
            world.event("a turn of rounds: " + ("a round begins" if begins else "a round ends"))
            return
        clock.run(clock.now + TURN_STEP)


def _islands(course: Course) -> None:
    """A group is cut off together, and other faults happen before, meanwhile, or when it is reached again."""
    world, random = _world(course, (None,)), course.random
    settle(world, 40.0, 0.0)
    world.clock.run(world.clock.now + 3.0 * random.random())
    fault(world, random, ISLAND)
    for _ in range(random.choice((0, 0, 1, 2))):
        world.clock.run(world.clock.now + 40.0 * random.random())
        fault(world, random, random.choice(random.choice((ENDINGS, LEADERS))))
    at_work_again(world)


def _survivors(course: Course) -> None:
    """Workers go on without members that are lost one after the other, and other faults meet that."""
    world, random = _world(course, (None,), survives=True), course.random
    world.delay = random.choice((0.03, 0.03, 0.3, 1.0))
    settle(world, 40.0, 0.0)
    for _ in range(random.choice((1, 2, 3))):
        world.clock.run(world.clock.now + 2.0 * random.random())
        working = [agent for index, agent in sorted(world.agents.items()) if agent.workers is not None and index]
        if working and random.random() < 0.7:
            random.choice(working).fail()
        else:
            fault(world, random, random.choice(ENDINGS))
        for _ in range(random.choice((0, 1, 1, 2))):
            world.clock.run(world.clock.now + 4.0 * random.random() ** 3)
            fault(world, random, random.choice(random.choice((APART, LEADERS, ENDINGS))))
    at_work_again(world)


def _budget(course: Course) -> None:
    """Failures alone, one in each round, with faults between them that stop no worker: the count is exact.

    Half of the failures meet a change of the leader before the next round has begun.
    """
    world, random = _world(course, (None, None, 0, 1, 2)), course.random
    for failures in range(1, 1 + random.choice((1, 2, 2, 3, 5))):
        settled(world)
        if ended(world):
            break
        running = [agent for agent in world.agents.values() if agent.workers is not None]
        random.choice(running).fail(REAL)
        if random.random() < 0.5:
            world.clock.run(world.clock.now + 3.0 * random.random())
            fault(world, random, random.choice(LEADERS))
        settled(world)
        _counted(world, failures)
        if random.random() < 0.6 and not ended(world):
            before, name = world.leader.state, random.choice(QUIET)
            fault(world, random, name)
            settled(world)
            _counted(world, failures)
            _undisturbed(world, before, name)
    at_work_again(world)


def _counted(world: World, failures: int) -> None:
    if world.end_forgotten:  # nothing that lives knows the failures before it
        return
    allowed = world.policy.max_restarts
    if ended(world):
        assert allowed is not None, "the job without a limit of restarts ended"
        assert failures > allowed, f"the job ended after {failures} failures; {allowed} restarts are allowed"
        return
    state = world.leader.state
    assert state is not None
    agreed = sum(1 for id_ in world.checks.members if id_.attempt)  # without a coordinator no budget ends a job
    assert allowed is None or failures <= allowed + agreed, (
        f"{failures} failures, {allowed} restarts allowed: the job goes on"
    )
    more = _behind_a_save(world)
    assert failures <= state.restarts <= failures + more, (
        f"{state.restarts} restarts are counted after {failures} failures"
    )
    working = [agent for agent in world.agents.values() if agent.workers and agent.assigned]
    told = {agent.session.standing.hello.restarts for agent in working}
    assert told == {state.restarts}, f"another leader would learn of {told} restarts after {failures} failures"
    counts = {agent.assigned.restarts for agent in working if agent.assigned}
    went_on = any(agent.shrunk is not None for agent in working)  # these know the number that their round began with
    assert counts == {state.restarts} or (went_on and len(counts) == 1), f"workers have the restart counts {counts}"


def _behind_a_save(world: World) -> int:
    """How many rounds may have begun because workers had saved to let a lost member in, and no coordinator answered.

    The members count each round that they agree on as a restart.
    """
    changed = {id_ for id_, _ in world.checks.shrinks}
    agreed = [id_ for id_ in world.checks.members if id_.attempt]
    return sum(1 for id_ in agreed if replace(id_, attempt=id_.attempt - 1) in changed)


def _undisturbed(world: World, before: JobState | None, name: str) -> None:
    """A leader that was frozen, or whose clock has jumped, ends no round."""
    after = world.leader.state
    if name in ("the leader is frozen", "the leader's clock jumps", "a wall clock jumps") and before and after:
        assert before.round is not None
        assert after.round is not None
        assert before.round.id == after.round.id, f"{name}: round {before.round.id} ended, nothing else had happened"


def _finish(course: Course) -> None:
    world, random = _world(course, (None, 0)), course.random
    settled(world)
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


def _twin(course: Course) -> None:
    """A second agent in a pod is refused, the job reports it, and the first one trains on."""
    world, random = _world(course, (None,)), course.random
    settled(world)
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


KINDS: dict[Callable[[Course], None], int] = {_chaos: 8, _turns: 4, _islands: 2, _budget: 4, _finish: 1, _twin: 1}
"""The kinds of schedules, with their weights."""


def fault(world: World, random: Random, name: str) -> None:
    """Let one thing happen now."""
    seconds, index = random.randint(0, 24) / 2, random.randint(0, 4)
    agent = world.agents.get(index) or next(iter(world.agents.values()), None)
    if agent is None or agent.dead:
        return
    world.log("fault", f"{name} (replica {agent.index}, {seconds:g} s)")
    world.event(name)
    world.faults += 1
    world.busy_until = max(world.busy_until, world.clock.now + seconds)
    FAULTS[name](world, agent, seconds)
