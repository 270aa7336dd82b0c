"""Where a second of a job's wall clock is booked: lives as tables, and the sum over any life."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import InterruptionKind
from pytorchjob_operator.goodput.ledger import Interruption, JobStage, Ledger, Sight, StepsSeen, advance, begin, book
from pytorchjob_operator.goodput.script_saves import SavesSeen

START = 100.0
P, W = TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION
STARTUP, SAVE = TimeClass.PROGRAM_STARTUP, TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME
LOAD = TimeClass.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME
RECOVERY = TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION

WAITS, STARTS = Sight(JobStage.WAITING_FOR_PODS), Sight(JobStage.STARTING)
RUNS, BEGINS = Sight(JobStage.RUNNING), Sight(JobStage.RUNNING, begins=True)
ADOPTS, GOES_BACK = Sight(JobStage.RUNNING, adopts=True), Sight(JobStage.RUNNING, goes_back=True)


def step(number: int, saves: int | None = None, seconds: float = 0.0, loads: float = 0.0) -> Sight:
    """A step, with the script's saves and loads so far in this round."""
    seen = SavesSeen(saves, seconds, number, loads) if saves is not None or loads else None
    return Sight(JobStage.RUNNING, number, StepsSeen(1), saves=seen)


def ends(seconds: float = 0.0, *, hung: bool = False) -> Sight:
    return Sight(JobStage.RESTARTING, interruption=Interruption(seconds, hung))


def fails(cause: InterruptionKind) -> Sight:
    return Sight(JobStage.RESTARTING, interruption=Interruption(cause=cause))


def live(*sights: tuple[float, Sight], end: float) -> Ledger:
    """A life: each sight with its second."""
    ledger = begin(TimeClass.WAITING_FOR_PODS, START)
    for seconds, sight in sights:
        ledger = advance(ledger, sight, START + seconds)
    return book(ledger, START + end)


FIRST_ROUND = ((2.0, STARTS), (3.0, BEGINS), (10.0, step(1)), (109.0, step(100)))
"""2 s without pods, 1 s of start, 7 s until the first step, then a step per second."""


@pytest.mark.parametrize(
    ("sights", "end", "expected"),
    [
        pytest.param((), 5, {TimeClass.WAITING_FOR_PODS: 5}, id="nothing is seen: it waits"),
        pytest.param(
            ((2.0, STARTS), (3.0, BEGINS)),
            9,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 1, P: 6},
            id="without known steps workers only run",
        ),
        pytest.param(
            FIRST_ROUND,
            109,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 99},
            id="a first step shows that the time before it was start",
        ),
        pytest.param(
            (*FIRST_ROUND, (111.0, ends(2.0)), (112.0, BEGINS), (115.0, step(51)), (165.0, step(101))),
            175,
            {
                TimeClass.WAITING_FOR_PODS: 2,
                STARTUP: 11,
                P: 99 + 1 + 10,
                TimeClass.DETECTION: 2,
                RECOVERY: 1,
                W: 49,
            },
            id="a failure costs detection, restart, load and the steps that are done again",
        ),
        pytest.param(
            (*FIRST_ROUND, (169.0, ends(1.0, hung=True))),
            169,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 99, TimeClass.HUNG: 60},
            id="hung workers have done nothing since their last step",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, Sight(JobStage.SAVING)), (113.0, Sight(JobStage.RESTARTING)), (114.0, BEGINS)),
            115,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 9, P: 100, SAVE: 3, RECOVERY: 1},
            id="a save on request, and a restart that is no failure",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, ends()), (111.0, WAITS), (131.0, Sight(JobStage.RESTARTING)), (132.0, BEGINS)),
            132,
            {TimeClass.WAITING_FOR_PODS: 22, STARTUP: 8, P: 100, RECOVERY: 2},
            id="a lost pod that finds no node",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, Sight(JobStage.SUSPENDED)), (140.0, WAITS)),
            141,
            {TimeClass.WAITING_FOR_PODS: 3, STARTUP: 8, P: 100, TimeClass.SUSPENDED: 30},
            id="a job that is suspended and resumed",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, Sight(JobStage.OVER))),
            113,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 100, TimeClass.OTHER: 3},
            id="pods that end after the training",
        ),
        pytest.param(
            (*FIRST_ROUND, (112.0, Sight(JobStage.OVER, over=2.0))),
            113,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 100, TimeClass.OTHER: 3},
            id="the end of the training is seen late",
        ),
        pytest.param(
            ((0.0, BEGINS), (5.0, ends(1.0)), (6.0, BEGINS), (10.0, step(1))),
            20,
            {STARTUP: 8, TimeClass.DETECTION: 1, RECOVERY: 1, P: 10},
            id="a round that failed before the first step was start as well",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, ADOPTS)),
            120,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 110},
            id="a round that runs when it becomes known goes on as before",
        ),
        pytest.param(
            (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (111.0, step(1)), (112.0, GOES_BACK), (113.0, step(2))),
            114,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 9, RECOVERY: 1, P: 101, W: 1},
            id="steps of each epoch count no replay",
        ),
        pytest.param(
            (*FIRST_ROUND, (120.0, step(106, 1, 5.0))),
            130,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 115, SAVE: 5},
            id="a save of the script",
        ),
        pytest.param(
            ((0.0, BEGINS), (10.0, Sight(JobStage.RUNNING, 5, StepsSeen(1, 4.0)))),
            20,
            {STARTUP: 6, P: 14},
            id="steps before the first report are no start",
        ),
        pytest.param(
            (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (120.0, Sight(JobStage.RUNNING, 95, StepsSeen(90, 5.0)))),
            122,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8 + 5, P: 99, RECOVERY: 1, W: 7},
            id="repeated steps before the first report are no start",
        ),
        pytest.param(
            (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (120.0, Sight(JobStage.RUNNING, 110, StepsSeen(90, 8.0)))),
            122,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8 + 2, P: 99 + 4 + 2, RECOVERY: 1, W: 4},
            id="a first report beyond the furthest step is split by its steps",
        ),
        pytest.param(
            (
                *FIRST_ROUND,
                *((109.0, ends()), (110.0, BEGINS), (111.0, step(98))),
                (121.0, Sight(JobStage.RUNNING, 102, StepsSeen(98, 10.0, 2.0))),
            ),
            122,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 9, P: 99 + 4 + 2 + 1, RECOVERY: 1, W: 4},
            id="the time since the last step is of a new one",
        ),
        pytest.param(
            (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (121.0, Sight(JobStage.RUNNING, workers_age=3.0))),
            125,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8 + 7, P: 99, RECOVERY: 1 + 8},
            id="agents that fetch a checkpoint before they start their workers",
        ),
        pytest.param(
            (
                *FIRST_ROUND,
                *((109.0, ends()), (110.0, BEGINS), (111.0, step(98))),
                (121.0, Sight(JobStage.RUNNING, 100, StepsSeen(98, 10.0, 2.0))),
            ),
            122,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 9, P: 99 + 2 + 1, RECOVERY: 1, W: 8},
            id="the time since the furthest step is of a new one",
        ),
        pytest.param(
            (*FIRST_ROUND, (140.0, Sight(JobStage.RUNNING, 101, StepsSeen(1, 99.0, 20.0))), (150.0, ends(hung=True))),
            150,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 110, TimeClass.HUNG: 30},
            id="a report that comes late begins no hang",
        ),
        pytest.param(
            ((0.0, BEGINS), (10.0, step(1, 1, 4.0))),
            20,
            {STARTUP: 6, P: 10, SAVE: 4},
            id="a save before the first step is no start",
        ),
        pytest.param(
            ((0.0, BEGINS), (10.0, step(1, loads=3.0)), (11.0, step(2, loads=3.5)), (12.0, ends()), (13.0, BEGINS)),
            18,
            {STARTUP: 6.5 + 5, P: 2, LOAD: 3.5, RECOVERY: 1},
            id="a load before the first step",
        ),
        pytest.param(
            (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (111.0, step(80)), (121.0, step(105, 1, 5.0))),
            121,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 9, P: 99 + 1, W: 4, RECOVERY: 1, SAVE: 5},
            id="a save among steps that are done again",
        ),
        pytest.param(
            (
                *FIRST_ROUND,
                (110.0, Sight(JobStage.SAVING)),
                (113.0, Sight(JobStage.SAVING, saves=SavesSeen(1, 2.0, 100))),
            ),
            113,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 100, SAVE: 3},
            id="a save on request is booked once",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, ADOPTS), (111.0, step(101, 9, 50.0)), (120.0, step(106, 10, 55.0))),
            120,
            {TimeClass.WAITING_FOR_PODS: 2, STARTUP: 8, P: 105, SAVE: 5},
            id="of a round that becomes known, only later saves count",
        ),
    ],
)
def test_lives(sights: tuple[tuple[float, Sight], ...], end: float, expected: dict[TimeClass, float]) -> None:
    found = live(*sights, end=end)
    assert {each: seconds for each, seconds in found.seconds.items() if seconds} == pytest.approx(expected)
    assert found.total == pytest.approx(end)


def test_a_heartbeat_that_passes_the_furthest_step_is_split_by_steps() -> None:
    life = (*FIRST_ROUND, (109.0, ends()), (110.0, BEGINS), (111.0, step(80)), (121.0, step(120)))
    found = live(*life, end=121)
    assert (found.seconds[W], found.seconds[P]) == pytest.approx((5.0, 99.0 + 5.0))


@pytest.mark.parametrize(
    ("sights", "highest"),
    [
        pytest.param((), None, id="no steps are known"),
        pytest.param((*FIRST_ROUND,), 100, id="of the present round"),
        pytest.param((*FIRST_ROUND, (110.0, ends()), (111.0, BEGINS), (112.0, step(7))), 100, id="of an earlier one"),
        pytest.param((*FIRST_ROUND, (110.0, GOES_BACK)), None, id="steps that go back say nothing"),
    ],
)
def test_the_furthest_step(sights: tuple[tuple[float, Sight], ...], highest: int | None) -> None:
    assert live(*sights, end=200).highest == highest


@pytest.mark.parametrize(
    ("sights", "saves", "new_steps"),
    [
        pytest.param(FIRST_ROUND, (0, 0.0, 0), 99, id="none yet"),
        pytest.param(
            (*FIRST_ROUND, (110.0, step(100, 2, 3.0)), (150.0, step(151, 3, 5.0))),
            (3, 5.0, 151),
            150,
            id="the steps from the start to the last save",
        ),
        pytest.param(
            (
                *FIRST_ROUND,
                (110.0, step(100, 2, 3.0)),
                (111.0, ends()),
                (112.0, BEGINS),
                (114.0, Sight(JobStage.RUNNING, 103, StepsSeen(101))),
                (120.0, Sight(JobStage.RUNNING, 160, saves=SavesSeen(1, 2.0, 150))),
            ),
            (3, 5.0, 150),
            99 + 57,
            id="a later round begins where the last save was",
        ),
        pytest.param(
            ((0.0, BEGINS), (1.0, Sight(JobStage.RUNNING, saves=SavesSeen(1, 1.0))), (5.0, step(1))),
            (0, 0.0, 0),
            0,
            id="a save before the first step does not count",
        ),
    ],
)
def test_saves_and_steps_are_counted(
    sights: tuple[tuple[float, Sight], ...], saves: tuple[int, float, int], new_steps: int
) -> None:
    found = live(*sights, end=200)
    script = found.script
    assert ((script.saves, script.seconds, script.steps), found.new_steps) == (saves, new_steps)


@pytest.mark.parametrize(
    ("sights", "unseen"),
    [
        pytest.param(FIRST_ROUND, False, id="nothing speaks for it"),
        pytest.param(
            (*FIRST_ROUND, (110.0, ends()), (111.0, BEGINS), (112.0, step(9))), False, id="all steps are done again"
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, ends()), (111.0, BEGINS), (112.0, Sight(JobStage.RUNNING, 60, StepsSeen(51)))),
            True,
            id="the script continued in the middle",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, ends()), (111.0, BEGINS), (112.0, Sight(JobStage.RUNNING, 60))),
            True,
            id="the step where the script continued is unknown",
        ),
        pytest.param(
            (*FIRST_ROUND, (110.0, Sight(JobStage.RUNNING, 101, saves=SavesSeen()))),
            True,
            id="a worker does not measure",
        ),
    ],
)
def test_saves_that_are_not_measured(sights: tuple[tuple[float, Sight], ...], unseen: bool) -> None:
    assert live(*sights, end=200).script.unseen is unseen


LOST, CRASH = InterruptionKind.POD_LOST, InterruptionKind.CRASH


@pytest.mark.parametrize(
    ("sights", "expected"),
    [
        pytest.param((fails(CRASH), BEGINS, fails(LOST)), (1, 1, 0), id="a crash, then a loss"),
        pytest.param((ends(hung=True),), (0, 0, 1), id="a hang"),
        pytest.param((ends(),), (0, 0, 0), id="an unknown cause"),
        pytest.param((fails(CRASH), Sight(JobStage.RESTARTING, cause=LOST)), (1, 0, 0), id="a crash by a lost pod"),
        pytest.param((ends(), Sight(JobStage.RESTARTING, cause=LOST)), (1, 0, 0), id="a lost pod that is found later"),
        pytest.param(
            (fails(CRASH), BEGINS, Sight(JobStage.RESTARTING, cause=LOST)),
            (0, 1, 0),
            id="a loss that interrupts nothing",
        ),
    ],
)
def test_causes(sights: tuple[Sight, ...], expected: tuple[int, int, int]) -> None:
    found = live(*((float(number), sight) for number, sight in enumerate(sights)), end=99).causes
    assert (found.pod_losses, found.crashes, found.hangs) == expected


SIGHTS = st.builds(
    Sight,
    st.sampled_from(JobStage),
    st.none() | st.integers(0, 50),
    st.none() | st.builds(StepsSeen, st.none() | st.integers(0, 50), st.floats(-10, 1e6), st.floats(-10, 1e6)),
    goes_back=st.booleans(),
    begins=st.booleans(),
    adopts=st.booleans(),
    interruption=st.none()
    | st.builds(Interruption, st.floats(-10, 1e6), st.booleans(), st.none() | st.sampled_from(InterruptionKind)),
    cause=st.none() | st.sampled_from(InterruptionKind),
    workers_age=st.none() | st.floats(-10, 1e6),
    saves=st.none()
    | st.builds(
        SavesSeen, st.none() | st.integers(0, 50), st.floats(0, 1e6), st.none() | st.integers(0, 50), st.floats(0, 1e6)
    ),
)
LIVES = st.lists(st.tuples(SIGHTS, st.floats(-1e4, 1e6)))


@given(LIVES)
def test_the_sum_is_the_wall_clock_whatever_is_seen_and_whatever_the_clock_does(
    life: list[tuple[Sight, float]],
) -> None:
    ledger = begin(TimeClass.WAITING_FOR_PODS, START)
    latest = now = START
    for sight, seconds in life:
        now += seconds
        latest = max(latest, now)
        ledger = advance(ledger, sight, now)
        assert all(value >= 0 for value in ledger.seconds.values())
        assert ledger.total == pytest.approx(latest - START, abs=1e-3)


@given(LIVES)
def test_another_clock_changes_nothing(life: list[tuple[Sight, float]]) -> None:
    plain = moved = begin(TimeClass.WAITING_FOR_PODS, START)
    now = START
    for sight, seconds in life:
        now += seconds
        plain = advance(plain, sight, now)
        moved = advance(moved.moved(1024.0), sight, now + 1024.0).moved(-1024.0)
    for each in TimeClass:
        assert moved.seconds.get(each, 0.0) == pytest.approx(plain.seconds.get(each, 0.0), abs=1e-3)
    assert without_times(moved) == without_times(plain)


def without_times(ledger: Ledger) -> Ledger:
    script = replace(ledger.script, settles=None)
    return replace(ledger, seconds={}, until=0, entered=0, stepped=None, unknown=0, script=script)
