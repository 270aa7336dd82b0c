"""What is read from the lines of a job: what a fault cost, and whether training stayed right."""

from collections.abc import Iterator

import pytest

from benchmarks.recovery.lines import Journal, longest_gap, recovery, replaced

SIZE = 2


def joined(group: str, first: int, size: int = SIZE, restarts: int = 0) -> Iterator[str]:
    for rank in range(size):
        yield (
            f"train event=joined time=0 pod=x-worker-{rank} rank={rank} world={size} restarts={restarts} "
            f"group={group} from_step={first} pid={10 + rank}"
        )


def step(group: str, number: int, time: float, ranks: tuple[int, ...] = (0, 1), loss: float = 0.0) -> Iterator[str]:
    there = "".join(str(int(rank in ranks)) for rank in range(SIZE))
    for rank in ranks:
        yield (
            f"train event=step time={time + rank} pod=x-worker-{rank} rank={rank} world={SIZE} restarts=0 "
            f"group={group} step={number} loss={loss or 1 / number:.12e} ranks={there}"
        )


def back(group: str, rank: int, first: int) -> Iterator[str]:
    yield (
        f"train event=back time=0 pod=x-worker-{rank} rank={rank} world={SIZE} restarts=0 group={group} "
        f"from_step={first} pid=99"
    )


def saved(number: int) -> Iterator[str]:
    yield f"train event=saved time=0 pod=x-worker-0 step={number}"


def journal(*parts: Iterator[str]) -> Journal:
    made = Journal("x")
    for part in parts:
        for line in part:
            made.add(line)
    return made


def before() -> list[Iterator[str]]:
    """A group that saved step 2, finished step 3 on all ranks, and was struck at second 20."""
    return [joined("1", 0), step("1", 1, 10), step("1", 2, 12), saved(2), step("1", 3, 14)]


def test_a_fault_cost_the_time_until_every_rank_of_the_new_group_has_finished_a_step() -> None:
    found = journal(*before(), joined("2", 2), step("2", 3, 30), step("2", 4, 32))
    cost = recovery(found, 20.0, found.groups["1"], {"1"}, SIZE)
    assert cost is not None
    assert (cost.seconds, cost.first_seconds, cost.pause_seconds) == (11.0, 11.0, 16.0)
    assert (cost.lost_steps, cost.groups, cost.restart_counts) == (1, 1, 1)
    assert found.problems == []


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([], id="no rank came back"),
        pytest.param([joined("2", 2)], id="all joined and none has finished a step"),
        pytest.param([joined("2", 2), step("2", 3, 30, (0,))], id="one rank has finished a step"),
        pytest.param([joined("2", 2, 1), step("2", 3, 30, (0,))], id="a smaller group trains"),
        pytest.param([step("1", 4, 30)], id="the group before goes on"),
    ],
)
def test_it_has_not_recovered_yet(parts: list[Iterator[str]]) -> None:
    found = journal(*before(), *parts)
    assert recovery(found, 20.0, found.groups["1"], {"1"}, SIZE) is None


def test_imports_are_those_of_the_slowest_process_of_the_new_group() -> None:
    starts = (
        f"train event=start time={time} pod=x-worker-{rank} pid={10 + rank} began={began} pod_started=0 restarts=1"
        for rank, began, time in [(0, 1, 9), (0, 21, 22), (1, 21, 24)]
    )
    found = journal(*before(), starts, joined("2", 2), step("2", 3, 30))
    cost = recovery(found, 20.0, found.groups["1"], {"1"}, SIZE)
    assert cost is not None
    assert cost.import_seconds == 3.0


def test_a_smaller_group_on_the_way_is_told_apart() -> None:
    small = [joined("2", 2, 1), step("2", 3, 25, (0,))]
    found = journal(*before(), *small, joined("3", 2), step("3", 3, 30))
    cost = recovery(found, 20.0, found.groups["1"], {"1"}, SIZE)
    assert cost is not None
    assert (cost.seconds, cost.first_seconds, cost.groups) == (11.0, 5.0, 2)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        pytest.param([step("1", 5, 16)], "did step 5 after step 3", id="a step is left out"),
        pytest.param([step("1", 3, 16)], "did step 3 after step 3", id="a step is done twice"),
        pytest.param([joined("2", 3)], "went on from step 3, which no rank saved", id="the step was never saved"),
        pytest.param([joined("2", 2), step("2", 3, 30, loss=0.5)], "the loss of step 3 was", id="another loss"),
        pytest.param([joined("2", 2), joined("2", 0)], "disagree", id="ranks go on from different steps"),
    ],
)
def test_training_that_went_wrong_is_noticed(parts: list[Iterator[str]], problem: str) -> None:
    found = journal(*before(), *parts)
    assert problem in found.problems[0]


def test_losses_are_held_against_those_of_an_undisturbed_run() -> None:
    found = journal(*before())
    assert found.wrong(1 / number for number in range(1, 100)) == []
    assert found.wrong(iter([1.0, 0.5, 0.25, 0.1])) == ["the loss of step 3 was 0.333333333333, computed it is 0.25"]


def test_lines_of_other_jobs_and_other_programs_are_left_alone() -> None:
    other = (line.replace("pod=x-", "pod=xy-") for line in joined("9", 0))
    assert journal(other, iter(["Traceback", ""])).groups == {}


def test_a_rank_is_away_from_its_group_and_comes_back() -> None:
    found = journal(*before(), step("1", 4, 16, (0,)), step("1", 5, 18, (0,)))
    group = found.groups["1"]
    assert (group.present, group.common()) == ({0}, 5)
    later = journal(*before(), step("1", 4, 16, (0,)), back("1", 1, 4), step("1", 5, 18), step("1", 6, 20))
    group = later.groups["1"]
    assert (group.present, group.common(), group.pids[1], group.returns, later.problems) == ({0, 1}, 6, 99, 1, [])


def test_the_last_line_of_a_lost_rank_may_arrive_behind_those_of_its_successor() -> None:
    late = (line for line in step("1", 4, 15) if "rank=1 " in line)
    alone = step("1", 4, 15, (0,)), step("1", 5, 17, (0,))
    found = journal(*before(), *alone, back("1", 1, 5), step("1", 6, 19), late, step("1", 7, 21))
    assert (found.groups["1"].common(), found.problems) == (7, [])


def test_the_longest_time_without_a_step() -> None:
    group = journal(joined("1", 0), step("1", 1, 10), step("1", 2, 14)).groups["1"]
    assert longest_gap(group, 10.0, 16.0) == 3.0  # the steps were finished at 10, 11, 14 and 15
    assert longest_gap(group, 11.0, 30.0) == 15.0


def test_when_the_pod_that_replaced_another_had_started() -> None:
    starts = (
        f"train event=start time=0 pod=x-worker-1 pid=7 began=0 pod_started={when} restarts=0" for when in (5.0, 25.0)
    )
    found = journal(starts)
    assert replaced(found, "x-worker-1", 20.0) == 25.0
    assert replaced(found, "x-worker-0", 20.0) is None
