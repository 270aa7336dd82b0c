"""The column *noticed* of docs/elastic.md: how soon the other members begin to stop, in simulated time.

No worker pulls another one down, and the operator notices nothing: so each figure is the coordinator's alone.
"""

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pytorchjob_operator.rounds.values import Policy

from .agent import Agent
from .faults import FAULTS
from .leader import TICK
from .settling import settle
from .workers import REAL
from .world import World

PAGE = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text()
STEP, LIMIT = 0.01, 60.0
AT_ONCE = 0.2
"""Messages take up to 0.03 s here, and an agent up to 0.011 s to wake up."""
KILL = 0.5
"""An agent reports a crash once its other workers are gone, which takes up to 0.5 s here."""
HEARTBEAT = 1.0
"""A silent node sent its last heartbeat up to a second before it died."""
SEEDS = range(30)


def _container_ends(world: World, agent: Agent) -> None:
    world.agents.pop(agent.index)  # nothing starts it again
    world.old.append(agent)
    agent.die(137, "its container ends")


def _node_dies(world: World, agent: Agent) -> None:
    agent.die(137, "its node is lost", silent=True)


def _worker_crashes(world: World, agent: Agent) -> None:
    agent.fail(REAL)


def _drains(world: World, agent: Agent) -> None:
    agent.drain()


def _lasting(name: str) -> Callable[[World, Agent], None]:
    def happens(world: World, agent: Agent) -> None:
        world.remove_pod = lambda index: None  # type: ignore[method-assign]
        FAULTS[name](world, agent, LIMIT)

    return happens


def _job(seed: int) -> tuple[World, Agent]:
    """Three members at work, one of which something is about to happen to."""
    world = World(Random(seed), Policy(2, 3, last_call_timeout=3.0), [1, 1, 1], None)
    assert settle(world) == ""
    world.checks.pull_down = lambda *_: None  # type: ignore[method-assign]
    world.sync = lambda low, high: None  # type: ignore[method-assign]
    for agent in world.agents.values():
        agent.cooperative = False
    world.clock.run(world.clock.now + 2 * HEARTBEAT)  # by then the coordinator knows it
    return world, world.agents[seed % 3]


def _seconds_until(world: World, happened: Callable[[], bool]) -> float:
    since = world.clock.now
    while not happened():
        assert world.clock.now < since + LIMIT, f"not noticed in {LIMIT:g} s"
        world.clock.run(world.clock.now + STEP)
    return world.clock.now - since


def noticed(seed: int, fault: Callable[[World, Agent], None]) -> float:
    """Return the seconds until a member that nothing happened to begins to stop."""
    world, hit = _job(seed)
    others = [agent for agent in world.agents.values() if agent is not hit]
    fault(world, hit)
    return _seconds_until(world, lambda: any(agent.stopping or agent.workers is None for agent in others))


def promised(row: str) -> float:
    """Return what the page says about this row: 0 for `at once`."""
    found = re.search(rf"^\| {re.escape(row)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    assert found is not None, f"docs/elastic.md has no row {row!r}"
    if found[1] == "at once" or found[1].startswith("at once,"):
        return 0.0
    seconds = re.match(r"([\d.]+) s", found[1])
    assert seconds is not None, found[1]
    return float(seconds[1])


@pytest.mark.parametrize(
    ("row", "fault", "sooner"),
    [
        pytest.param("a worker crashes", _worker_crashes, 0.0, id="a worker crashes"),
        pytest.param(
            "a container ends (its first process is killed, out of memory)", _container_ends, 0.0, id="a container ends"
        ),
        pytest.param("a pod is deleted, evicted or drained", _drains, 0.0, id="a pod is asked to go"),
        pytest.param("a pod is force-deleted", _container_ends, 0.0, id="a pod is force-deleted"),
        pytest.param("a node dies or freezes", _node_dies, HEARTBEAT, id="a node dies"),
        pytest.param("a node dies or freezes", _lasting("an agent is frozen"), HEARTBEAT, id="a node freezes"),
        pytest.param(
            "an agent is frozen (stopped, or in a call that does not return), its node is well",
            _lasting("an agent is frozen for good"),
            HEARTBEAT,
            id="an agent is frozen",
        ),
        pytest.param(
            "a node is cut off", _lasting("a pod is cut off from all others"), HEARTBEAT, id="a node is cut off"
        ),
    ],
)
def test_the_others_notice_in_the_promised_time(row: str, fault: Callable[[World, Agent], None], sooner: float) -> None:
    exact = promised(row)
    times = [noticed(seed, fault) for seed in SEEDS]
    late = exact + AT_ONCE + (TICK if exact else KILL)
    assert [f"{seconds:.2f} s" for seconds in times if not exact - sooner <= seconds <= late] == []


def test_an_agent_that_hears_neither_the_coordinator_nor_a_peer_stops_its_workers_in_the_promised_time() -> None:
    exact = promised("a node is cut off")
    for seed in SEEDS:
        world, hit = _job(seed)
        _lasting("a pod is cut off from all others")(world, hit)
        seconds = _seconds_until(world, lambda hit=hit: hit.workers is None)  # type: ignore[misc]
        assert exact - 2 * HEARTBEAT <= seconds <= exact + HEARTBEAT + KILL + AT_ONCE, f"seed {seed}: {seconds:.2f} s"


@pytest.mark.parametrize("name", ["the way to the coordinator is closed", "another leader"])
def test_nobody_stops(name: str) -> None:
    """The rows without a time: training continues."""
    for seed in SEEDS:
        world, hit = _job(seed)
        FAULTS[name](world, hit, 20.0)
        since = world.clock.now
        while world.clock.now < since + 20.0:
            world.clock.run(world.clock.now + STEP)
            stopped = [agent for agent in world.agents.values() if agent.workers is None or agent.stopping]
            assert stopped == [], f"seed {seed}, after {world.clock.now - since:.2f} s"
