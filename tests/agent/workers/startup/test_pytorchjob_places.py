"""Where the main thread of a worker works, as its agent reports it."""

import sys
from pathlib import Path

from pytorchjob_agent.stragglers.own_times import OwnTimes
from pytorchjob_agent.workers.startup.pytorchjob_collectives import OWN_TIME
from pytorchjob_agent.workers.startup.pytorchjob_places import Sampler, places, read
from tests.agent.stragglers.test_own_times import write


def logs(sampler: Sampler) -> None:
    sampler.look(sys._getframe())


def trains(sampler: Sampler) -> None:
    sampler.look(sys._getframe())


def test_the_parts_of_a_window_come_to_the_heartbeat(tmp_path: Path) -> None:
    times, saves = OwnTimes(tmp_path, 1), False
    write(times, 0, 1, 2, 750, 1000)
    sampler = Sampler(times.env(0)[OWN_TIME] + ".places", lambda: not saves)
    for _ in range(3):
        trains(sampler)
    logs(sampler)
    saves = True
    for _ in range(6):
        logs(sampler)
    sampler.write()
    found = {name.split()[-1]: part for name, part in times.report()["own_places"].items()}
    assert (found["trains"], found["logs"]) == (300, 100)


def test_a_collective_is_no_place() -> None:
    scope: dict[str, object] = {"places": places, "sys": sys}
    exec(
        compile("def wait(): return places(sys._getframe())", "/x/torch/distributed/distributed_c10d.py", "exec"), scope
    )
    assert scope["wait"]() == []  # type: ignore[operator]


def test_what_no_worker_writes_is_ignored() -> None:
    assert [*read("{", 4), *read("[]", 4), *read('{"a": "b", "c": -1, "d": 5000}', 4)] == []
    assert [*read('{"a": 1, "b": 3, "c": 2}', 2)] == [("b", 3), ("c", 2)]
