"""What the coordinator books of a job's life: stories with their seconds. Each story's sum is its wall clock."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from pytorchjob_agent.contract.messages import LEASE_SECONDS, Done, Draining, Failed, Heartbeat, Resumed, RoundId
from pytorchjob_agent.contract.reasons import ShrinkState
from pytorchjob_operator.accounting import synced
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import Causes
from pytorchjob_operator.goodput.ledger import Ledger, begin, book
from pytorchjob_operator.rounds.losses import RECONNECT_SECONDS
from pytorchjob_operator.rounds.state import JobSynced
from tests.rounds.story import Job, another_leader, expected, stopped

RUNNING, STARTUP = TimeClass.RUNNING, TimeClass.PROGRAM_STARTUP
RECOVERY, DETECTION = TimeClass.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION, TimeClass.DETECTION
REPLAYED, SAVES = TimeClass.WASTED_PROGRESS_FROM_DISRUPTION, TimeClass.UNPRODUCTIVE_CHECKPOINT_SAVE_TIME
LOADS = TimeClass.UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME
WAITS, HUNG = TimeClass.WAITING_FOR_PODS, TimeClass.HUNG


def sync(job: Job, ledger: Ledger | None, *, lacks_pods: bool = False) -> None:
    job.account = synced(job.account, job.state, ledger, lacks_pods, job.now)
    job.feed(JobSynced(job.policy, job.pods))


def new(replicas: int = 2, **policy: float) -> Job:
    """A job whose time is booked from now on, by another clock."""
    job = Job(replicas, **policy)
    sync(job, begin(STARTUP, 7.0))
    return job


def trains(job: Job, seconds: int, first: int, silent: tuple[int, ...] = (), **beat: float) -> None:
    """Every member reports one step in each second."""
    for step in range(first, first + seconds):
        job.passes(1, silent=silent, step=step, **beat)


def trained(seconds: int = 10, replicas: int = 2, **policy: float) -> Job:
    """A job that has reported its first step after 1 s, and one in each second since."""
    job = new(replicas, **policy)
    job.waits(*range(replicas))
    trains(job, seconds + 1, 1)
    return job


def booked(job: Job) -> dict[TimeClass, float]:
    """The seconds of each class that has any."""
    assert job.account.ledger is not None
    ledger = book(job.account.ledger, job.now)
    assert ledger.total == pytest.approx(job.now - 1000.0)
    return {each: seconds for each, seconds in ledger.seconds.items() if seconds > 0.001}


def goes_on(job: Job, *members: int, seconds: int, first: int) -> None:
    """The members have stopped, join, and train from this step on."""
    stopped(job, *members)
    job.passes(0.25)
    assert job.runs
    trains(job, seconds, first)


def starts() -> Job:
    job = new()
    job.waits(0)
    job.passes(4)
    job.waits(1)
    job.passes(2)
    trains(job, 6, 1)
    return job


def fails() -> Job:
    job = trained()
    job.fails(0, age=0.0)
    goes_on(job, 0, 1, seconds=10, first=6)
    return job


def reports_a_failure_late() -> Job:
    job = trained()
    job.passes(2, step=11)
    job.fails(0, age=2.0)
    return job


def hangs() -> Job:
    job = trained()
    job.passes(60, step=11)
    job.fails(0, "RuntimeError: no step for 60 s", hang=True)
    return job


def hangs_behind_a_bare_bar() -> Job:
    """No step is known; the agent has measured for how long nothing moved."""
    job = new()
    job.waits(0, 1)
    job.passes(197, percent=36)
    job.fails(0, "no rank has made progress of any kind for 125 s", hang=True, idle=125.0)
    return job


def falls_silent() -> Job:
    job = trained()
    job.passes(LEASE_SECONDS, silent=(1,), step=11)
    assert not job.runs
    return job


def loses_a_connection() -> Job:
    job = trained()
    job.breaks(1)
    del job.links[1]
    job.passes(RECONNECT_SECONDS, step=11)
    assert not job.runs
    return job


READY = {"shrinks": ShrinkState.READY.value}


def survivors() -> Job:
    """A trained job whose workers go on without a lost one."""
    job = new(3, min_members=1, survive=True)
    job.waits(0, 1, 2)
    trains(job, 11, 1, **READY)
    return job


def goes_on_without_a_killed_worker() -> Job:
    job = survivors()
    job.fails(1, "killed by SIGKILL", exit_code=137)
    assert job.runs
    trains(job, 10, 12, silent=(1,), **READY)
    return job


def goes_on_without_a_frozen_worker() -> Job:
    job = survivors()
    job.passes(5, step=11, **READY)
    job.fails(1, "stopped by a signal", hang=True, stopped=True, idle=5.0)
    assert job.runs
    trains(job, 10, 12, silent=(1,), **READY)
    return job


def goes_on_without_a_silent_agent() -> Job:
    job = survivors()
    job.passes(LEASE_SECONDS, silent=(1,), step=11, **READY)
    assert job.runs
    assert job.state.round is not None
    assert job.state.round.left
    trains(job, 10, 12, silent=(1,), **READY)
    return job


def goes_on_during_a_replay() -> Job:
    job = survivors()
    job.fails(0, age=0.0)  # of rank 0: a new round begins
    stopped(job, 0, 1, 2)
    job.passes(0.25)
    trains(job, 4, 6, **READY)
    job.passes(LEASE_SECONDS, silent=(1,), step=9, **READY)
    assert job.state.round is not None
    assert job.state.round.left
    job.passes(1, silent=(1,), step=13, **READY)  # two of these four steps are new
    trains(job, 3, 14, silent=(1,), **READY)
    return job


def goes_on_without_a_pod_that_leaves() -> Job:
    job = survivors()
    job.says(1, Draining(20.0, "preempted"))
    assert job.runs
    trains(job, 10, 12, silent=(1,), **READY)
    return job


def loses_a_pod_and_waits_for_a_node() -> Job:
    job = trained()
    job.fails(0)
    del job.pods[1]
    sync(job, None, lacks_pods=True)
    job.passes(20, silent=(1,))
    job.pods[1] = expected(1, "uid-new")
    sync(job, None)
    job.passes(3, silent=(1,))
    return job


def saves_on_request() -> Job:
    job = new(2, min_members=1)
    job.waits(0, 1)
    job.passes(1, step=1, cooperative=True)
    job.passes(9, step=10, cooperative=True)
    job.goes(1)
    job.passes(3, step=10, cooperative=True)
    job.passes(1, step=10, cooperative=True, answered=1)
    assert not job.runs
    return job


def ends() -> Job:
    job = trained()
    for index in (0, 1):
        assert job.round is not None
        job.says(index, Done(job.round))
    job.passes(5)
    return job


def ends_before_it_is_reported() -> Job:
    """The training is over with its last worker, whichever agent reports it first."""
    job = trained()
    job.passes(3, step=11)
    assert job.round is not None
    job.says(0, Done(job.round, 2.0))
    job.says(0, Done(job.round, 1.0))  # said again on another connection, with the same age
    job.passes(1, step=11)
    job.says(1, Done(job.round, 3.5))
    job.passes(5)
    return job


def waits_for_its_last_copy() -> Job:
    """The agents report the end only once the last save is on durable storage."""
    job = trained()
    job.passes(300, step=11)
    assert job.round is not None
    job.says(0, Done(job.round, 300.0))
    job.says(1, Done(job.round, 299.5))
    return job


def ends_with_one_agent_later() -> Job:
    job = trained()
    assert job.round is not None
    job.says(0, Done(job.round, 5.0))
    job.says(1, Done(job.round))
    job.passes(5)
    return job


def shows_no_steps() -> Job:
    job = new()
    job.waits(0, 1)
    job.passes(10)
    return job


def prints_the_steps_of_each_epoch() -> Job:
    job = new()
    job.waits(0, 1)
    for step in (1, 2, 3, 4, 1, 2, 3, 4):
        job.passes(1, shown_step=step)
    job.fails(0)
    stopped(job, 0, 1)
    job.passes(0.25)
    for step in (1, 2, 3, 4):
        job.passes(1, shown_step=step)
    return job


def prints_the_steps_of_the_training() -> Job:
    job = new()
    job.waits(0, 1)
    for step in (1, 2, 3, 4):
        job.passes(1, shown_step=step)
    job.fails(0)
    stopped(job, 0, 1)
    job.passes(0.25)
    for step in (2, 3, 4, 5):
        job.passes(1, shown_step=step)
    return job


def saves_by_itself() -> Job:
    job = trained()
    job.passes(5, step=12, first_step=1, saves=0)
    job.passes(1, step=20, first_step=1, saves=1, save_seconds=4.0, saved_step=20)
    job.passes(4, step=24, first_step=1, saves=1, save_seconds=4.0, saved_step=20)
    return job


def loads_at_its_start() -> Job:
    job = new()
    job.waits(0, 1)
    job.passes(5, load_seconds=3.0)
    trains(job, 10, 1, load_seconds=3.0)
    return job


def fetches_a_checkpoint() -> Job:
    job = trained()
    job.fails(0, age=0.0)
    stopped(job, 0, 1)
    job.passes(0.25)
    job.passes(5)
    job.passes(1, workers_age=0.5)
    job.passes(1, workers_age=1.5, step=11)
    return job


STORIES = [
    pytest.param(starts, {STARTUP: 7, RUNNING: 5}, id="members join, and load"),
    pytest.param(fails, {STARTUP: 2, RUNNING: 14, REPLAYED: 5}, id="a worker fails, and five steps are repeated"),
    pytest.param(
        reports_a_failure_late, {STARTUP: 1, RUNNING: 10, DETECTION: 2}, id="a failure is reported with its age"
    ),
    pytest.param(hangs, {STARTUP: 1, RUNNING: 10, HUNG: 60}, id="workers hang since their last step"),
    pytest.param(hangs_behind_a_bare_bar, {RUNNING: 72, HUNG: 125}, id="workers hang, and show no steps"),
    pytest.param(
        falls_silent, {STARTUP: 1, RUNNING: 10, DETECTION: LEASE_SECONDS}, id="an agent sends nothing any more"
    ),
    pytest.param(
        loses_a_connection,
        {STARTUP: 1, RUNNING: 10, DETECTION: RECONNECT_SECONDS},
        id="an agent loses its connection for good",
    ),
    pytest.param(goes_on_without_a_killed_worker, {STARTUP: 1, RUNNING: 20}, id="the others go on at once"),
    pytest.param(
        goes_on_without_a_frozen_worker,
        {STARTUP: 1, RUNNING: 20, HUNG: 5},
        id="the others go on once it is known that a worker is frozen",
    ),
    pytest.param(
        goes_on_without_a_silent_agent,
        {STARTUP: 1, RUNNING: 20, DETECTION: LEASE_SECONDS},
        id="the others go on once an agent is known to be lost",
    ),
    pytest.param(
        goes_on_during_a_replay,
        {STARTUP: 2, RUNNING: 13.5, REPLAYED: 3.5, DETECTION: LEASE_SECONDS},
        id="the others go on while they repeat steps",
    ),
    pytest.param(
        loses_a_pod_and_waits_for_a_node,
        {STARTUP: 1, RUNNING: 10, WAITS: 20, RECOVERY: 3},
        id="a pod is lost, and its successor has no node at first",
    ),
    pytest.param(saves_on_request, {STARTUP: 1, RUNNING: 9, SAVES: 4}, id="a pod leaves, and the others save first"),
    pytest.param(saves_by_itself, {STARTUP: 1, RUNNING: 16, SAVES: 4}, id="a script saves by itself"),
    pytest.param(loads_at_its_start, {STARTUP: 3, LOADS: 3, RUNNING: 9}, id="a script loads before its first step"),
    pytest.param(
        fetches_a_checkpoint,
        {STARTUP: 2.5, RUNNING: 10, RECOVERY: 5.5},
        id="agents fetch a checkpoint before the workers start",
    ),
    pytest.param(ends, {STARTUP: 1, RUNNING: 10, TimeClass.OTHER: 5}, id="the training is over"),
    pytest.param(
        ends_before_it_is_reported,
        {STARTUP: 1, RUNNING: 11, TimeClass.OTHER: 8},
        id="the training was over before it is reported",
    ),
    pytest.param(
        waits_for_its_last_copy,
        {STARTUP: 1, RUNNING: 10.5, TimeClass.OTHER: 299.5},
        id="the training was over minutes before its last copy",
    ),
    pytest.param(
        ends_with_one_agent_later,
        {STARTUP: 1, RUNNING: 10, TimeClass.OTHER: 5},
        id="an agent does not say when its workers ended",
    ),
    pytest.param(shows_no_steps, {RUNNING: 10}, id="workers only run if no steps are known"),
    pytest.param(
        prints_the_steps_of_each_epoch,
        {STARTUP: 2, RUNNING: 10},
        id="steps of each epoch are no replay",
    ),
    pytest.param(
        prints_the_steps_of_the_training,
        {STARTUP: 2, RUNNING: 4, REPLAYED: 2},
        id="observed steps of the whole training are",
    ),
]


@pytest.mark.parametrize(("story", "expected_seconds"), STORIES)
def test_stories(story: Callable[[], Job], expected_seconds: dict[TimeClass, float]) -> None:
    found = booked(story())
    short = {RECOVERY} - expected_seconds.keys()  # the time in which members stop and join
    assert sum(found.pop(each, 0.0) for each in short) <= 1.5
    assert found == pytest.approx(expected_seconds, abs=0.3)


@pytest.mark.parametrize(
    ("end", "interruptions"),
    [
        pytest.param(fails, 1, id="a failure"),
        pytest.param(falls_silent, 1, id="a loss"),
        pytest.param(goes_on_without_a_silent_agent, 1, id="a loss after which the others go on"),
        pytest.param(goes_on_without_a_pod_that_leaves, 0, id="a pod that leaves, and the others go on"),
        pytest.param(saves_on_request, 0, id="a pod that leaves in time"),
        pytest.param(ends, 0, id="success"),
    ],
)
def test_interruptions(end: Callable[[], Job], interruptions: int) -> None:
    ledger = end().account.ledger
    assert ledger is not None
    assert ledger.interruptions == interruptions


def crashes_because_a_pod_is_lost() -> Job:
    job = trained()
    job.fails(0, "DistNetworkError: Connection closed by peer")
    job.breaks(1)
    del job.links[1]
    job.passes(RECONNECT_SECONDS, silent=(1,))
    return job


@pytest.mark.parametrize(
    ("end", "causes"),
    [
        pytest.param(fails, Causes(crashes=1), id="a worker fails"),
        pytest.param(goes_on_without_a_killed_worker, Causes(crashes=1), id="a worker fails, and the others go on"),
        pytest.param(goes_on_without_a_frozen_worker, Causes(hangs=1), id="a worker is frozen, and the others go on"),
        pytest.param(hangs, Causes(hangs=1), id="workers hang"),
        pytest.param(falls_silent, Causes(pod_losses=1), id="an agent is silent"),
        pytest.param(crashes_because_a_pod_is_lost, Causes(pod_losses=1), id="a lost pod lets the others fail"),
    ],
)
def test_causes_of_interruptions(end: Callable[[], Job], causes: Causes) -> None:
    ledger = end().account.ledger
    assert ledger is not None
    assert replace(ledger.causes, last=None, open=False) == causes


def test_the_longest_saves_of_the_members_count() -> None:
    job = trained()
    for number in (1, 2):
        for index, seconds in ((0, 2.0), (1, 3.0)):
            job.now += 1
            step = 12 + 10 * number
            job.says(index, Heartbeat(step=step, saves=number, save_seconds=number * seconds, saved_step=step))
    assert job.account.ledger is not None
    script = job.account.ledger.script
    assert (script.saves, script.seconds, script.steps) == (2, 6.0, 32)


def test_a_heartbeat_without_a_new_save_changes_no_ledger() -> None:
    job = trained()
    job.says(0, Heartbeat(step=11, saves=1, save_seconds=2.0, saved_step=11))
    before = job.account.ledger
    job.says(0, Heartbeat(step=11, saves=1, save_seconds=2.0, saved_step=11))
    job.says(1, Heartbeat(step=11, saves=0))
    assert job.account.ledger is before


def test_an_agent_that_measures_no_saves_leaves_them_unknown() -> None:
    job = trained()
    assert job.account.ledger is not None
    assert job.account.ledger.script.unseen


def test_a_new_coordinator_goes_on_with_the_ledger_of_the_status() -> None:
    job = trained()
    old = job.account.ledger
    assert old is not None
    assert job.round is not None
    round_, after = job.round, another_leader(job)
    stored = book(old, job.now)
    sync(after, stored.moved(50.0))
    for index in (0, 1):
        after.hello(index, round=round_, rank=index, size=2)
    trains(after, 5, 12)
    assert after.account.ledger is not None
    found = book(after.account.ledger, after.now)
    assert found.total == pytest.approx(stored.total + 5)
    assert found.seconds == pytest.approx({STARTUP: 1, RUNNING: 15}, abs=0.3)


def without_operator(seconds: float = 21.0) -> tuple[Job, RoundId]:
    """A job that has trained for 10 s, and a new coordinator after some more seconds."""
    job = trained()
    assert job.account.ledger is not None
    assert job.round is not None
    round_, after = job.round, another_leader(job)
    after.now = job.now + seconds
    sync(after, book(job.account.ledger, after.now))
    return after, round_


def agreed_meanwhile(**failed: float) -> Job:
    """Rank 1 failed 11 s ago; the members agreed on a round, whose workers started 8 s ago."""
    after, round_ = without_operator()
    agreed = RoundId(round_.term, round_.number, 1)
    for index in (0, 1):
        after.hello(index, round=agreed, rank=index, size=2, restarts=1)
        after.says(index, Resumed(agreed, 1, "", 11.0))
    for _ in range(2):  # a connection that breaks brings it again
        after.says(1, Failed(round_, 1, 0, 1, "ValueError: no", age=11.0, **failed))  # type: ignore[arg-type]
    for _ in range(4):
        after.now += 1
        age = after.now - 1032 + 8
        for index in (0, 1):
            after.says(index, Heartbeat(step=4 + round(age), first_step=6, first_age=age - 2, workers_age=age))
    return after


def waited_meanwhile(**failed: float) -> Job:
    """Rank 1 failed 15 s ago, and all wait for a round."""
    after, round_ = without_operator()
    for index in (0, 1):
        after.hello(index, last_round=round_, rank=index, size=2)
        if index:
            after.says(1, Failed(round_, 1, 0, 1, "ValueError: no", age=15.0, **failed))  # type: ignore[arg-type]
        after.joins(index)
    return after


def lasted_meanwhile() -> Job:
    after, round_ = without_operator()
    for index in (0, 1):
        after.hello(index, round=round_, rank=index, size=2)
    return after


@pytest.mark.parametrize(
    ("story", "seconds", "causes"),
    [
        pytest.param(
            agreed_meanwhile,
            {STARTUP: 1 + 2, RUNNING: 10 + 10 + 5, RECOVERY: 3, REPLAYED: 5},
            Causes(crashes=1),
            id="the members agreed on a round after a crash",
        ),
        pytest.param(
            partial(agreed_meanwhile, hang=True, idle=6.0),
            {STARTUP: 1 + 2, RUNNING: 10 + 4 + 5, HUNG: 6, RECOVERY: 3, REPLAYED: 5},
            Causes(hangs=1),
            id="the members agreed on a round after a hang",
        ),
        pytest.param(
            waited_meanwhile,
            {STARTUP: 1, RUNNING: 10 + 6, DETECTION: 15},
            Causes(crashes=1),
            id="the members wait after a crash",
        ),
        pytest.param(
            partial(waited_meanwhile, hang=True, idle=6.0),
            {STARTUP: 1, RUNNING: 10, HUNG: 21},
            Causes(hangs=1),
            id="the members wait after a hang",
        ),
        pytest.param(lasted_meanwhile, {STARTUP: 1, RUNNING: 31}, Causes(), id="nothing happened"),
    ],
)
def test_what_happened_without_an_operator(
    story: Callable[[], Job], seconds: dict[TimeClass, float], causes: Causes
) -> None:
    job = story()
    found, ledger = booked(job), job.account.ledger
    assert ledger is not None
    assert found == pytest.approx(seconds, abs=0.3)
    assert ledger.interruptions == sum((causes.crashes, causes.hangs))
    assert replace(ledger.causes, last=None, open=False) == causes


def test_members_that_join_again_after_a_suspension_restart() -> None:
    job = Job(2)
    ledger = replace(book(begin(RUNNING, 0.0), 10.0), furthest=10, current=RECOVERY, entered=10.0)
    sync(job, ledger)
    job.waits(0)
    job.passes(4)
    job.waits(1)
    trains(job, 5, 6)
    assert job.account.ledger is not None
    found = book(job.account.ledger, job.now).seconds
    assert found == pytest.approx({RUNNING: 10, RECOVERY: 4, STARTUP: 1, REPLAYED: 4}, abs=0.3)


def test_a_later_sync_does_not_replace_the_ledger() -> None:
    job = trained()
    before = booked(job)
    sync(job, begin(STARTUP, 0.0))
    assert booked(job) == before


def test_until_an_agent_is_heard_each_sync_brings_the_ledger() -> None:
    job = new()
    job.now += 5
    sync(job, begin(WAITS, 3.0))
    assert job.account.ledger is not None
    assert (job.account.ledger.current, job.account.ledger.until) == (WAITS, job.now)


def test_a_heartbeat_without_a_new_step_changes_no_ledger() -> None:
    job = trained()
    before = job.account.ledger
    job.says(0, Heartbeat(step=11))
    job.says(1, Heartbeat(step=10))
    assert job.account.ledger is before
