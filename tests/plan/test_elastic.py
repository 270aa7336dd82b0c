"""What the coordinator's report means for the job: its end, status.elastic, status.progress, Degraded, backoffLimit."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from pytorchjob_agent.contract.collectives import CollectiveFault
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import CollectiveFaultKind, FailureKind
from pytorchjob_operator.coordinator_report import LastRestart, PhaseName, Report, TrainingEnd
from pytorchjob_operator.model import (
    CollectiveStatus,
    ConditionType,
    ElasticStatus,
    FirstFailureStatus,
    JobStatus,
    ProgressStatus,
    PyTorchJob,
    RestartStatus,
)
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Observed, Pod
from pytorchjob_operator.plan import Plan, columns, make_plan
from pytorchjob_operator.plan.elastic import progress_delay
from pytorchjob_operator.plan.outcome import Counts
from tests.factories import at, make_job, observed, pods

RUN, OVER = "Running", "Succeeded"
ROUND = Report(round="3.7", phase=PhaseName.RUNNING, members=2, world=4)
FAULT = CollectiveFault(CollectiveFaultKind.DIFFERS, (1,), "0 (default_pg)", 7, "all_reduce float32[3]", "barrier")
STUCK = LastRestart(7.0, "WorkersHang", "it hangs", FirstFailure(FailureKind.HANGS, 1, "pod-1", 1, collective=FAULT))
SHOWN_STUCK = RestartStatus(
    time=at(93),
    reason="WorkersHang",
    message="it hangs",
    first=FirstFailureStatus(
        kind="WorkersHang",
        rank=1,
        pod="pod-1",
        exit_code=1,
        collective=CollectiveStatus(
            kind="CollectiveDiffers", group="0 (default_pg)", number=7, call="all_reduce float32[3]", own="barrier"
        ),
    ),
)
FELL = LastRestart(7.0, "WorkerFailed", "rank 1 (x-worker-0) exited with code 1 at step 12: ValueError")
LOST = TrainingEnd("RestartsUsedUp", "rank 1 (x-worker-0) exited with 1. All 3 restarts are used up", 1)
SHOWN = ElasticStatus(round="3.7", members=2, world_size=4)
STEP = ProgressStatus(step=100, total=1000, percent=10, time=at(0))


def running(**status: Any) -> PyTorchJob:
    """A job all of whose pods run, as its status says."""
    job = make_job()
    plan = make_plan(observed(job, *pods(RUN, RUN)))
    assert plan.status is not None
    found = plan.status.model_copy(update=status)
    counts = {role: Counts(wanted=1, active=1) for role in ReplicaType}
    shown = columns.build(found, counts, running=True)
    return job.model_copy(update={"status": found.model_copy(update={"columns": shown})})


def observe(job: PyTorchJob, report: Report | None, *seen: Pod, seconds: float = 100, due: bool = False) -> Observed:
    found = observed(job, *(seen or pods(RUN, RUN)), seconds=seconds)
    return replace(found, report=report, status_due=found.now if due else None)


def after(job: PyTorchJob, report: Report | None, *seen: Pod, seconds: float = 100) -> JobStatus:
    """The status once whatever may wait has waited."""
    return make_plan(observe(job, report, *seen, seconds=seconds, due=True)).status or job.status


def waits(plan: Plan, seconds: float = 100) -> float | None:
    """How long a plan puts its status off; None if it has none to write."""
    if plan.status is not None:
        return 0.0
    return None if plan.status_due is None else (plan.status_due - at(seconds)).total_seconds()


def test_a_failure_that_the_coordinator_judged_ends_the_job_in_its_words() -> None:
    plan = make_plan(observe(running(), replace(ROUND, phase=PhaseName.ENDED, ended=LOST)))
    assert plan.status is not None
    failed = plan.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.reason, failed.message) == ("PyTorchJobFailed", LOST.message)
    assert [(event.reason, event.message) for event in plan.events] == [("PyTorchJobFailed", LOST.message)]


@pytest.mark.parametrize(
    ("phases", "ended", "expected"),
    [
        pytest.param((RUN, RUN), TrainingEnd("Succeeded", "", 0), None, id="members that are done end with their pods"),
        pytest.param((OVER, RUN), LOST, ConditionType.SUCCEEDED, id="what has succeeded stays succeeded"),
        pytest.param(("Failed", RUN), LOST, ConditionType.FAILED, id="a pod that has failed because of it"),
    ],
)
def test_other_ends(phases: tuple[str, ...], ended: TrainingEnd, expected: ConditionType | None) -> None:
    status = after(running(), replace(ROUND, ended=ended), *pods(*phases))
    kinds = (ConditionType.SUCCEEDED, ConditionType.FAILED)
    assert [kind for kind in kinds if status.holds(kind)] == ([expected] if expected else [])


def test_the_cause_is_told_where_the_pods_alone_would_say_less() -> None:
    job = make_job(restart="Never")
    status = after(job, replace(ROUND, ended=LOST), *pods("Failed", "Failed"))
    failed = status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message == LOST.message


@pytest.mark.parametrize(
    ("stored", "report", "expected"),
    [
        pytest.param(None, Report(), None, id="no round yet"),
        pytest.param(None, ROUND, SHOWN, id="a round"),
        pytest.param(SHOWN, Report(), SHOWN, id="a new coordinator that has met nobody takes nothing back"),
        pytest.param(SHOWN, None, SHOWN, id="nor does none at all"),
        pytest.param(
            SHOWN, replace(ROUND, phase=PhaseName.RENDEZVOUS), SHOWN, id="the last round until the next one begins"
        ),
        pytest.param(
            SHOWN, replace(ROUND, round="3.8", world=0), SHOWN.model_copy(update={"round": "3.8"}), id="an unknown size"
        ),
        pytest.param(
            SHOWN.model_copy(update={"restarts": 4}),
            ROUND,
            SHOWN.model_copy(update={"restarts": 4}),
            id="restarts are of the job's life",
        ),
        pytest.param(
            None,
            replace(ROUND, restarts=1, last_restart=FELL),
            SHOWN.model_copy(
                update={
                    "restarts": 1,
                    "last_restart": RestartStatus(time=at(93), reason="WorkerFailed", message=FELL.message),
                }
            ),
            id="the last restart, with its time",
        ),
        pytest.param(
            None,
            replace(ROUND, restarts=1, last_restart=STUCK),
            SHOWN.model_copy(update={"restarts": 1, "last_restart": SHOWN_STUCK}),
            id="the collective in which the others waited",
        ),
    ],
)
def test_elastic(stored: ElasticStatus | None, report: Report | None, expected: ElasticStatus | None) -> None:
    assert after(running(elastic=stored), report).elastic == expected


def test_a_restart_keeps_its_time_although_its_age_is_told_anew() -> None:
    first = after(running(), replace(ROUND, restarts=1, last_restart=FELL)).elastic
    again = make_plan(
        observe(running(elastic=first), replace(ROUND, restarts=1, last_restart=replace(FELL, age=8.9)), seconds=102)
    )
    assert waits(again, 102) is None


def test_a_job_that_is_suspended_has_no_group() -> None:
    job = make_job(runPolicy={"suspend": True}, status=running(elastic=SHOWN, progress=STEP).status)
    status = after(job, None)
    assert (status.elastic, status.progress) == (None, None)


@pytest.mark.parametrize(
    ("stored", "report", "expected"),
    [
        pytest.param({}, Report(), None, id="nothing is known: nothing is written"),
        pytest.param({"elastic": SHOWN}, ROUND, None, id="nothing is new"),
        pytest.param({}, ROUND, 5, id="a round waits a little for what follows it"),
        pytest.param({"elastic": SHOWN}, replace(ROUND, problems={"PeerUnreachable": "no"}), 5, id="so does a problem"),
        pytest.param({"elastic": SHOWN}, replace(ROUND, step=5), 5, id="and the first step"),
        pytest.param({"elastic": SHOWN, "progress": STEP}, replace(ROUND, step=100, total=1000), None, id="no step"),
        pytest.param(
            {"elastic": SHOWN, "progress": STEP.model_copy(update={"time": at(98)})},
            replace(ROUND, step=101, total=1000),
            4,
            id="steps of a young job are written every few seconds",
        ),
        pytest.param(
            {"elastic": SHOWN, "progress": STEP}, replace(ROUND, step=101, total=1000), 0, id="after that time at once"
        ),
        pytest.param(
            {"elastic": SHOWN, "progress": STEP.model_copy(update={"time": at(98)})},
            replace(ROUND, round="3.8", step=101, total=1000),
            5,
            id="steps come along with what is written sooner",
        ),
    ],
)
def test_how_long_a_write_may_wait(stored: dict[str, Any], report: Report, expected: float | None) -> None:
    assert waits(make_plan(observe(running(**stored), report))) == expected


REPORTING = replace(ROUND, step=100, total=1000)


@pytest.mark.parametrize(
    ("stored", "report", "seconds"),
    [
        pytest.param(STEP, REPORTING, 6, id="progress"),
        pytest.param(None, REPORTING, 5, id="its first progress, which is written then"),
        pytest.param(STEP, ROUND, 6, id="no progress yet in a new round"),
        pytest.param(None, ROUND, None, id="never any progress"),
        pytest.param(STEP, replace(REPORTING, phase=PhaseName.RENDEZVOUS), None, id="no round runs"),
    ],
)
def test_new_steps_are_asked_for_every_few_seconds(
    stored: ProgressStatus | None, report: Report, seconds: float | None
) -> None:
    progress = stored and stored.model_copy(update={"time": at(90)})
    plan = make_plan(observe(running(elastic=SHOWN, progress=progress), report))
    assert plan.wake_at == (None if seconds is None else at(100) + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("ran", "left", "expected"),
    [
        pytest.param(0, None, 6, id="it begins: never twice in five seconds"),
        pytest.param(600, None, 10, id="after ten minutes"),
        pytest.param(3600, None, 60, id="after an hour"),
        pytest.param(36_000, None, 60, id="never less than once a minute"),
        pytest.param(36_000, 1200, 20, id="twenty minutes before the end"),
        pytest.param(36_000, 60, 6, id="a minute before the end"),
        pytest.param(600, 36_000, 10, id="the end is far"),
        pytest.param(36_000, 2**53 - 1, 60, id="the end is farther than a time can be"),
        pytest.param(-60, None, 6, id="clocks that differ"),
    ],
)
def test_how_often_progress_is_written(ran: int, left: int | None, expected: int) -> None:
    status = JobStatus(start_time=at(0), progress=STEP.model_copy(update={"remaining_seconds": left}))
    assert progress_delay(status, at(ran)) == timedelta(seconds=expected)


def test_a_job_without_a_start_time_is_young() -> None:
    assert progress_delay(JobStatus(), at(0)) == timedelta(seconds=6)


def test_steps_alone_are_written_at_most_once_in_five_seconds() -> None:
    job, due = running(elastic=SHOWN), None
    written = []
    for tenth in range(1000, 2000):
        seconds = tenth / 10
        report = replace(ROUND, step=tenth, total=10_000, metrics={"loss": 1 / tenth})
        plan = make_plan(replace(observe(job, report, seconds=seconds), status_due=due))
        due = plan.status_due
        if plan.status is not None:
            written.append(seconds)
            job = job.model_copy(update={"status": plan.status})
    assert len(written) > 10
    assert min(later - before for before, later in pairwise(written)) >= 5


@pytest.mark.parametrize(
    ("stored", "report", "expected"),
    [
        pytest.param(None, ROUND, None, id="a script that tells nothing"),
        pytest.param(None, replace(ROUND, step=5), ProgressStatus(step=5, time=at(100)), id="a step"),
        pytest.param(
            None,
            replace(ROUND, step=250, total=1000, metrics={"loss": 0.5, "odd": 1e200}),
            ProgressStatus(step=250, total=1000, percent=25, metrics={"loss": 0.5}, time=at(100)),
            id="of how many, with numbers, the sane ones",
        ),
        pytest.param(
            STEP,
            replace(ROUND, step=300, total=1000),
            ProgressStatus(step=300, total=1000, percent=30, remaining_seconds=350, time=at(100)),
            id="and how long it will take at the speed since the last time",
        ),
        pytest.param(
            STEP.model_copy(update={"remaining_seconds": 9}),
            replace(ROUND, step=50, total=1000),
            ProgressStatus(step=50, total=1000, percent=5, remaining_seconds=9, time=at(100)),
            id="steps that were lost say nothing of the speed",
        ),
        pytest.param(
            None,
            replace(ROUND, step=250, total=1000, remaining=75, rate=10.1234),
            ProgressStatus(step=250, total=1000, percent=25, remaining_seconds=75, steps_per_second=10.1, time=at(100)),
            id="with the speed of the round",
        ),
        pytest.param(
            None,
            replace(ROUND, percent=42, remaining=60),
            ProgressStatus(percent=42, remaining_seconds=60, time=at(100)),
            id="of a script that shows its share alone",
        ),
        pytest.param(
            None,
            replace(ROUND, step=99, total=100, percent=100, remaining=-5, rate=1e300),
            ProgressStatus(step=99, total=100, percent=100, remaining_seconds=0, time=at(100)),
            id="its own share counts, and numbers out of bounds do not",
        ),
        pytest.param(
            None,
            replace(ROUND, metrics={"loss": 0.5}),
            ProgressStatus(metrics={"loss": 0.5}, time=at(100)),
            id="a loss alone",
        ),
        pytest.param(STEP, replace(ROUND, step=100, total=1000), STEP, id="the same keeps its time"),
        pytest.param(
            STEP, replace(ROUND, step=100, total=1000, remaining=7, rate=3.0), STEP, id="also with another speed"
        ),
        pytest.param(STEP, replace(ROUND, step=None), STEP, id="members that have gone take nothing back"),
        pytest.param(
            None,
            replace(ROUND, step=2**53, total=2**53),
            ProgressStatus(step=2**53 - 1, total=2**53 - 1, percent=100, time=at(100)),
            id="numbers that nobody counts to",
        ),
    ],
)
def test_progress(stored: ProgressStatus | None, report: Report, expected: ProgressStatus | None) -> None:
    assert after(running(elastic=SHOWN, progress=stored), report).progress == expected


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        pytest.param({}, None, id="nothing is wrong"),
        pytest.param({"RendezvousWaiting": "1 of 2"}, ("RendezvousWaiting", "1 of 2"), id="a problem"),
        pytest.param(
            {"RendezvousWaiting": "1 of 2", "AgentRefused": "who?"},
            ("AgentRefused", "who?; 1 of 2"),
            id="the cause first",
        ),
        pytest.param({"Novelty": "new"}, ("Novelty", "new"), id="one that is not known here"),
    ],
)
def test_degraded(problems: dict[str, str], expected: tuple[str, str] | None) -> None:
    status = after(running(elastic=SHOWN), replace(ROUND, problems=problems))
    found = status.condition(ConditionType.DEGRADED)
    assert (None if found is None else (found.reason, found.message)) == expected
    assert status.conditions[-1].type is ConditionType.RUNNING


STALLED = replace(ROUND, phase=PhaseName.STALLED)
TIMED_OUT = "the rendezvous timed out after 600 s: 1 of 2 members are ready"


@pytest.mark.parametrize(
    ("problems", "reason", "message"),
    [
        pytest.param({"RendezvousWaiting": TIMED_OUT}, "RendezvousTimeout", TIMED_OUT, id="the timeout is the reason"),
        pytest.param(
            {"CoordinatorUnreachable": "x cannot reach it", "RendezvousWaiting": TIMED_OUT},
            "RendezvousTimeout",
            f"{TIMED_OUT}; x cannot reach it",
            id="also while a pod cannot reach the coordinator",
        ),
        pytest.param(
            {"CoordinatorDefect": "a defect", "RendezvousWaiting": "1 of 2"},
            "CoordinatorDefect",
            "a defect; 1 of 2",
            id="a defect comes first",
        ),
        pytest.param(
            {},
            "RendezvousTimeout",
            "the last rendezvous failed: no round starts until an agent joins again",
            id="it always has a reason",
        ),
    ],
)
def test_a_stalled_job_shows_why_no_round_starts(problems: dict[str, str], reason: str, message: str) -> None:
    found = after(running(elastic=SHOWN), replace(STALLED, problems=problems)).condition(ConditionType.DEGRADED)
    assert found is not None
    assert (found.reason, found.message) == (reason, message)


def test_degraded_goes_when_it_is_over_and_when_the_job_ends() -> None:
    wrong = replace(ROUND, problems={"PeerUnreachable": "no"})
    status = after(running(elastic=SHOWN), wrong)
    assert status.holds(ConditionType.DEGRADED)
    job = make_job(status=status)
    assert after(job, ROUND).condition(ConditionType.DEGRADED) is None
    assert after(job, replace(wrong, ended=LOST)).condition(ConditionType.DEGRADED) is None
    assert after(job, wrong, *pods(OVER, OVER)).condition(ConditionType.DEGRADED) is None


@pytest.mark.parametrize(
    ("spec", "report", "expected"),
    [
        pytest.param({"backoffLimit": 3}, replace(ROUND, restarts=2), False, id="fewer than the limit"),
        pytest.param({"backoffLimit": 3}, replace(ROUND, restarts=3), True, id="as many"),
        pytest.param({"backoffLimit": 2}, replace(ROUND, restarts=1), True, id="together with a container's restart"),
        pytest.param({}, replace(ROUND, restarts=99), False, id="no limit"),
    ],
)
def test_restarts_inside_of_pods_count_against_backoff_limit(
    spec: dict[str, int], report: Report, expected: bool
) -> None:
    seen = pods(RUN, RUN)
    second = replace(seen[1], restarts=1 if spec.get("backoffLimit") == 2 else 0)
    job = make_job(runPolicy=spec, status=running(elastic=SHOWN).status)
    assert after(job, report, seen[0], second).holds(ConditionType.FAILED) is expected


def test_restarts_with_a_budget_of_their_own_do_not() -> None:
    policy = {"minReplicas": 1, "maxReplicas": 1, "maxRestarts": 9}
    job = make_job(runPolicy={"backoffLimit": 1}, elasticPolicy=policy, status=running(elastic=SHOWN).status)
    assert not after(job, replace(ROUND, restarts=5)).holds(ConditionType.FAILED)


def test_a_new_coordinator_gives_no_restart_back() -> None:
    stored = running(elastic=SHOWN.model_copy(update={"restarts": 3})).status
    job = make_job(runPolicy={"backoffLimit": 3}, status=stored)
    assert after(job, None).holds(ConditionType.FAILED)
