"""What the agent observes of its workers: posts count more than lines, and the furthest worker counts."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_agent.observers.observed_progress import ObservedProgress
from pytorchjob_agent.observers.round_observers import OBSERVERS, RoundObservers
from pytorchjob_agent.rendezvous.extension import OwnPod
from pytorchjob_agent.script.observation import Observation, furthest, with_pace
from pytorchjob_agent.script.status_request import SERVER_URL, TOKEN_FILE

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[ObservedProgress]:
    made = ObservedProgress(tmp_path, 2)
    yield made
    made.close()


def post(observed: ObservedProgress, local_rank: int, **status: Any) -> None:
    env = observed.env(local_rank, {})
    headers = {"Authorization": f"Bearer {Path(env[TOKEN_FILE]).read_text()}"}
    body = json.dumps({"trainerStatus": status}).encode()
    with DIRECT.open(urllib.request.Request(env[SERVER_URL], body, headers), timeout=30) as answer:
        assert answer.status == 200


def steps(step: int, total: int) -> list[dict[str, str]]:
    return [{"name": "current_step", "value": str(step)}, {"name": "total_steps", "value": str(total)}]


def test_nothing_is_known_at_first(observed: ObservedProgress) -> None:
    observed.add_line(0, b"hello")
    assert observed.read(0) is None


def test_of_several_ranks_the_furthest_counts(observed: ObservedProgress) -> None:
    observed.add_line(0, b"step 5/10 loss 0.5")
    observed.add_line(1, b"step 6/10 loss 0.7")
    assert observed.read(0) == Observation(6, 10, 60, metrics={"loss": 0.7})


def test_what_is_posted_counts_more_than_what_is_printed(observed: ObservedProgress) -> None:
    observed.add_line(0, b"step 5/10 loss 0.5")
    post(observed, 1, progressPercentage=20)
    assert observed.read(0) == Observation(percent=20)


def test_the_last_post_keeps_the_step_before_it(observed: ObservedProgress) -> None:
    post(observed, 0, progressPercentage=0, metrics=steps(0, 40)[1:])
    post(observed, 0, progressPercentage=95, metrics=steps(38, 40))
    post(observed, 0, progressPercentage=100, estimatedRemainingSeconds=0)
    assert observed.read(0) == Observation(38, 40, 100, 0)


def test_a_rank_that_the_pod_does_not_have_changes_nothing(observed: ObservedProgress) -> None:
    env = observed.env(7, {})
    headers = {"Authorization": f"Bearer {Path(env[TOKEN_FILE]).read_text()}"}
    body = b'{"trainerStatus": {"progressPercentage": 5}}'
    with DIRECT.open(urllib.request.Request(env[SERVER_URL], body, headers), timeout=30):
        assert observed.read(0) is None


def test_the_speed_counts_from_the_first_report(observed: ObservedProgress) -> None:
    found = []
    for at, line in ((100, b"step 10/100 loss 1"), (110, b"step 30/100 loss 1"), (120, b"step 50/100 loss 1")):
        observed.add_line(0, line)
        seen = observed.read(at)
        assert seen is not None
        found.append((seen.step, seen.rate, seen.remaining))
    assert found == [(10, 0.0, None), (30, 2.0, 35), (50, 2.0, 25)]


@pytest.mark.parametrize(
    ("last", "percent"),
    [
        pytest.param("Epoch 20/20 loss 0.1", 100, id="the last epoch"),
        pytest.param("Epoch 19/20 loss 0.1", 90, id="the last but one: the script stopped early"),
        pytest.param("epoch 19/20 loss 0.1", 90, id="small letters"),
        pytest.param("step 19/20 loss 0.1", 95, id="a step is exact"),
    ],
)
def test_the_last_epoch_of_workers_that_have_ended_is_over(observed: ObservedProgress, last: str, percent: int) -> None:
    observed.add_line(0, last.encode())
    observed.ended()
    found = observed.read(1.0)
    assert found is not None
    assert found.percent == percent


def test_only_the_newest_lines_are_kept(observed: ObservedProgress) -> None:
    for step in range(1000):
        observed.add_line(0, f"step {step}/1000 loss 1".encode())
    found = observed.read(0)
    assert found is not None
    assert found.step == 999


@pytest.mark.parametrize(("value", "expected"), [(None, True), ("1", True), ("0", False)])
def test_the_field_switches_it_off(value: str | None, expected: bool) -> None:
    env = {} if value is None else {"PYTORCHJOB_OBSERVE_PROGRESS": value}
    assert isinstance(OBSERVERS.create(OwnPod(env, "job", "127.0.0.1", 1)), RoundObservers) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([Observation()], None, id="nothing that is known"),
        pytest.param([Observation(step=5), Observation(percent=1)], Observation(percent=1), id="a share says more"),
        pytest.param(
            [Observation(metrics={"loss": 1.0}), Observation(metrics={"loss": 2.0})],
            Observation(metrics={"loss": 1.0}),
            id="the first of equals",
        ),
    ],
)
def test_furthest(found: list[Observation], expected: Observation | None) -> None:
    assert furthest(found) == expected


@pytest.mark.parametrize(
    ("now", "first", "seconds", "expected"),
    [
        pytest.param(Observation(5, 10), Observation(0), 0.5, (0.0, None), id="too early"),
        pytest.param(Observation(5, 10), Observation(0), 10, (0.5, 10), id="by steps"),
        pytest.param(Observation(5), Observation(0), 10, (0.5, None), id="of how many is unknown"),
        pytest.param(Observation(5, 10, remaining=3), Observation(0), 10, (0.5, 3), id="the script knows it"),
        pytest.param(Observation(5, 10), Observation(5), 10, (0.0, None), id="no step since"),
        pytest.param(Observation(percent=30), Observation(percent=20), 10, (0.0, 70), id="by percentages"),
        pytest.param(Observation(percent=30), Observation(percent=30), 10, (0.0, None), id="no percentage since"),
        pytest.param(Observation(12, 10), Observation(0), 10, (1.2, 0), id="more steps than there are"),
    ],
)
def test_pace(now: Observation, first: Observation, seconds: float, expected: tuple[float, int | None]) -> None:
    found = with_pace(now, first, seconds)
    assert (found.rate, found.remaining) == expected
