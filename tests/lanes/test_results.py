"""Each test counts once, and a run that did not really end is no success."""

import copy
import json
from pathlib import Path

import pytest

from tests.lanes.results import Results, Tail, verdict


def event(test: str, outcome: str, problem: str = "") -> str:
    return json.dumps({"test": test, "outcome": outcome, "seconds": 0.5, "problem": problem})


def read(*lines: str) -> Results:
    results = Results()
    results.add(lines)
    return results


@pytest.mark.parametrize(
    ("outcomes", "counted"),
    [
        pytest.param(["passed"], "passed", id="it passes"),
        pytest.param(["skipped"], "skipped", id="it is skipped"),
        pytest.param(["passed", "failed"], "failed", id="its teardown fails"),
        pytest.param(["failed", "failed"], "failed", id="it and its teardown fail"),
        pytest.param(["failed", "passed"], "failed", id="a failure stays"),
    ],
)
def test_a_test_counts_once_by_its_worst_outcome(outcomes: list[str], counted: str) -> None:
    results = read(*(event("x", outcome) for outcome in outcomes))
    assert [results.count(outcome) for outcome in ("passed", "skipped", "failed")] == [
        int(counted == outcome) for outcome in ("passed", "skipped", "failed")
    ]


def test_a_failure_is_told_once_with_what_it_says() -> None:
    results = Results()
    assert [failure.problem for failure in results.add([event("x", "failed", "assert 1 == 2")])] == ["assert 1 == 2"]
    assert results.add([event("x", "failed", "and again")]) == []


@pytest.mark.parametrize(
    ("code", "lines", "problem"),
    [
        pytest.param(0, [event("x", "passed"), '{"collected": 1}'], "", id="all passed"),
        pytest.param(1, [event("x", "failed"), '{"collected": 1}'], "", id="one failed, and is known"),
        pytest.param(0, [event("x", "passed")], "it crashed (exit code 0)", id="no end, whatever the exit code"),
        pytest.param(-9, [event("x", "passed")], "it crashed (exit code -9)", id="killed"),
        pytest.param(-6, [event("x", "passed"), '{"collected": 1}'], "it crashed (exit code -6)", id="crashed late"),
        pytest.param(5, ['{"collected": 0}'], "it found no test (exit code 5)", id="nothing collected"),
        pytest.param(2, [], "it was interrupted (exit code 2)", id="interrupted"),
        pytest.param(0, [event("x", "passed"), '{"collected": 3}'], "2 of 3 tests did not run", id="some did not run"),
        pytest.param(
            1,
            [event("x", "passed"), '{"collected": 1}'],
            "pytest reports a failure that belongs to no test",
            id="a failure of nothing",
        ),
    ],
)
def test_a_run_is_trusted_when_its_events_and_its_exit_code_agree(code: int, lines: list[str], problem: str) -> None:
    assert verdict(code, Results(), read(*lines)) == problem


def test_the_second_run_of_a_lane_is_judged_by_its_own_tests() -> None:
    first = read(event("x", "failed"), '{"collected": 1}')
    second = copy.deepcopy(first)
    second.add(['{"collected": 1}'])
    assert verdict(0, first, second) == "1 of 1 tests did not run"


def test_a_line_in_writing_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text("one\ntw")
    tail = Tail(path)
    assert tail.lines() == ["one"]
    assert tail.lines() == []
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert tail.lines() == ["two", "three"]
