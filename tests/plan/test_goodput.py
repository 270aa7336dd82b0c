"""The ledger of a job in its status: what the pods alone show, what the coordinator reports, and when it is written."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.goodput.classes import TimeClass
from pytorchjob_operator.goodput.interruptions import Causes
from pytorchjob_operator.goodput.ledger import JobStage, Ledger, begin, book
from pytorchjob_operator.goodput.script_saves import ScriptSaves
from pytorchjob_operator.model import ElasticStatus, GoodputSeconds, GoodputStatus, PyTorchJob
from pytorchjob_operator.observed import CoordinatorAccess, Observed, Options, Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.problem import PodProblem
from tests.factories import at, make_job, make_pod, make_template, observed, pods

RUN, WAIT, OVER, BAD = PodPhase.RUNNING, PodPhase.PENDING, PodPhase.SUCCEEDED, PodPhase.FAILED
OPTIONS = Options(coordinator=CoordinatorAccess("op:29600"))
ROUND = Report(round="1.1", phase=PhaseName.RUNNING, members=2, world=2)
AGENTS = make_template()
AGENTS["spec"]["containers"][0]["command"] = ["pytorchjob-agent", "run", "--", "train.py"]
PLACED = (make_pod("master-0", WAIT, node="a"), make_pod("worker-0", WAIT, node="b"))


class Life:
    """A job that the operator sees from time to time; each status that it writes is stored."""

    def __init__(self, job: PyTorchJob | None = None, *, agents: bool = False) -> None:
        self.job = job or make_job(template=AGENTS if agents else None)
        self.options = OPTIONS if agents else Options()
        self.report: Report | None = None
        self.update: object = None

    def see(self, seconds: float, *seen: Pod, due: bool = True) -> "Life":
        """One pass; `due`: whatever may wait has waited."""
        found: Observed = replace(observed(self.job, *seen, seconds=seconds), options=self.options, report=self.report)
        plan = make_plan(replace(found, status_due=found.now if due else None))
        self.update = plan.coordinator
        if plan.status is not None:
            stored = {**self.job.to_api(), "status": plan.status.to_api()}
            self.job = PyTorchJob.model_validate(stored)
        return self

    @property
    def stored(self) -> GoodputStatus:
        assert self.job.status.goodput is not None
        return self.job.status.goodput

    def seconds(self) -> dict[str, float]:
        return dict(self.stored.seconds.to_api())

    def hears(self, ledger: Ledger, **more: Any) -> "Life":
        self.report = replace(ROUND, ledger=ledger, **more)
        return self


def suspend(job: PyTorchJob, wanted: bool) -> PyTorchJob:
    policy = job.spec.run_policy.model_copy(update={"suspend": wanted})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"run_policy": policy})})


def test_the_seconds_have_a_field_for_each_class() -> None:
    assert {field.alias for field in GoodputSeconds.model_fields.values()} == {each.value for each in TimeClass}


def test_a_plain_job_runs_while_its_containers_run() -> None:
    life = Life().see(0, *pods(WAIT, WAIT)).see(10, *PLACED).see(30, *pods(RUN, RUN)).see(130, *pods(OVER, OVER))
    assert life.seconds() == {"waitingForPods": 10, "programStartup": 20, "running": 100}
    assert (life.stored.percent, life.stored.furthest_step, life.stored.interruptions) == (76.9, None, None)
    assert life.job.status.columns is not None
    assert (life.job.status.columns.running, life.job.status.columns.lost) == ("76.9%", "30s")


def test_a_plain_job_whose_pod_is_replaced() -> None:
    life = Life(make_job(restart="ExitCode")).see(0, *pods(RUN, RUN))
    life.see(100, *pods(RUN, "Failed")).see(101, *pods(RUN, WAIT)).see(120, *pods(RUN, RUN)).see(150, *pods(OVER, OVER))
    assert life.seconds() == {"waitingForPods": 20, "running": 130}
    assert life.stored.interruptions == 1


def test_containers_that_the_kubelet_restarts() -> None:
    crash = make_pod("worker-0", RUN, node="a", problem=PodProblem("CrashLoopBackOff", "back-off"))
    life = Life().see(0, *pods(RUN, RUN)).see(50, make_pod("master-0"), crash).see(80, *pods(RUN, RUN))
    assert life.see(90, *pods(OVER, OVER)).seconds() == {
        "running": 60,
        "infrastructureRecoveryFromDisruption": 30,
    }


def test_an_elastic_job_trains_with_the_least_pods() -> None:
    job = make_job(master=None, workers=2, elasticPolicy={"minReplicas": 1, "maxReplicas": 2})
    worker = make_pod("worker-0")
    assert Life(job).see(0, worker).see(10, worker).see(20, worker, make_pod("worker-1")).stored.current == "running"


def test_a_job_counts_from_its_creation() -> None:
    life = Life(make_job(meta={"creationTimestamp": at(-5).isoformat()})).see(0, *pods(WAIT, WAIT))
    assert life.seconds() == {"waitingForPods": 5}


@pytest.mark.parametrize("created", [at(60).isoformat(), "soon"])
def test_a_creation_that_is_unknown_or_in_the_future_counts_as_now(created: str) -> None:
    assert Life(make_job(meta={"creationTimestamp": created})).see(0, *pods(RUN, RUN)).seconds() == {}


def test_a_job_that_another_operator_managed_counts_from_now_on() -> None:
    life = Life(make_job(template=AGENTS, meta={"creationTimestamp": at(-3600).isoformat()}), agents=True)
    old = make_plan(observed(life.job, *pods(RUN, RUN))).status
    assert old is not None
    status = old.model_copy(update={"goodput": None, "elastic": ElasticStatus(round="1.1")})
    life.job = life.job.model_copy(update={"status": status})
    life.see(5, *pods(RUN, RUN)).see(10, *pods(OVER, OVER))
    assert (life.seconds(), life.stored.current) == ({}, "running")


def test_a_suspended_job_and_the_wait_for_its_pods() -> None:
    life = Life().see(0, *pods(RUN, RUN)).see(10, *pods(RUN, RUN))
    life.job = suspend(life.job, True)
    life.see(20, *pods(RUN, RUN)).see(30)
    life.job = suspend(life.job, False)
    life.see(60).see(61).see(65, *pods(RUN, RUN)).see(75, *pods(OVER, OVER))
    assert life.seconds() == {"running": 30, "suspended": 40, "waitingForPods": 5}


def test_a_resumed_job_waits_for_its_pods_until_they_run() -> None:
    """Its agents import torch before the coordinator hears them."""
    life = Life(agents=True).hears(book(begin(TimeClass.RUNNING, 0.0), 10.0)).see(10, *pods(RUN, RUN))
    life.job, life.report = suspend(life.job, True), None
    life.see(20).see(30)
    life.job = suspend(life.job, False)
    life.see(60).see(61).see(65, *pods(RUN, RUN)).see(80, *pods(RUN, RUN))
    assert life.stored.current == "infrastructureRecoveryFromDisruption"
    assert life.see(81, *pods(OVER, OVER)).seconds() == {
        "running": 20,
        "suspended": 40,
        "waitingForPods": 5,
        "infrastructureRecoveryFromDisruption": 16,
    }


def test_agents_start_until_the_coordinator_hears_them() -> None:
    life = Life(agents=True).see(0, *pods(WAIT, WAIT)).see(10, *pods(RUN, RUN))
    life.report = Report()
    assert life.see(20, *pods(RUN, RUN)).stored.current == "programStartup"


def test_the_coordinators_ledger_counts_by_the_wall_clock() -> None:
    life = Life(agents=True).see(0, *pods(RUN, RUN))
    ledger = book(replace(begin(TimeClass.RUNNING, 5.0), step=7), 45.0)
    life.hears(ledger, step=7).see(40, *pods(RUN, RUN))
    assert (life.seconds(), life.stored.furthest_step, life.stored.time) == ({"running": 40}, 7, at(40))


def test_a_change_of_the_leader_loses_no_second() -> None:
    life = Life(agents=True).see(0, *pods(RUN, RUN))
    life.hears(book(replace(begin(TimeClass.RUNNING, 5.0), step=7), 45.0)).see(40, *pods(RUN, RUN))
    life.report = Report()  # of a coordinator that has heard no agent yet
    life.see(52, *pods(RUN, RUN))
    assert isinstance(life.update, Sync)
    assert life.update.ledger is not None
    assert (life.update.ledger.total, life.update.ledger.current) == (52, TimeClass.RUNNING)
    assert (life.update.ledger.until, life.update.ledger.furthest) == (at(52).timestamp(), 7)


def test_the_stored_ledger_stays_while_nothing_else_changes() -> None:
    life = Life(agents=True).see(0, *pods(RUN, RUN)).hears(book(begin(TimeClass.RUNNING, 0.0), 40.0))
    before = life.see(40, *pods(RUN, RUN)).stored
    life.hears(book(begin(TimeClass.RUNNING, 0.0), 400.0))
    assert life.see(400, *pods(RUN, RUN)).stored == before


def test_without_a_coordinator_another_open_class_is_written_soon() -> None:
    life = Life().see(0, *pods(WAIT, WAIT))
    assert life.see(10, *PLACED, due=False).stored.current == "waitingForPods"
    assert life.see(15, *PLACED).stored.current == "programStartup"


@pytest.mark.parametrize(
    ("seen", "stage"),
    [
        pytest.param((), JobStage.WAITING_FOR_PODS, id="no pods"),
        pytest.param(pods(RUN, WAIT), JobStage.WAITING_FOR_PODS, id="a pod without a node"),
        pytest.param((make_pod("master-0"), PLACED[1]), JobStage.STARTING, id="a pod whose image is fetched"),
        pytest.param(pods(RUN, RUN), JobStage.RUNNING, id="all run"),
        pytest.param(pods(RUN, OVER), JobStage.RUNNING, id="a worker has succeeded"),
        pytest.param(
            (make_pod("master-0"), make_pod("worker-0", deleting=True)), JobStage.WAITING_FOR_PODS, id="one goes"
        ),
    ],
)
def test_the_stage_by_pods_reaches_the_coordinator(seen: tuple[Pod, ...], stage: JobStage) -> None:
    plan = make_plan(replace(observed(make_job(), *seen), options=OPTIONS))
    assert isinstance(plan.coordinator, Sync)
    assert plan.coordinator.stage is stage


def test_a_class_of_a_later_version_counts_as_another() -> None:
    life = Life().see(0, *pods(RUN, RUN))
    stored = life.stored.model_copy(update={"current": "lunch"})
    life.job = life.job.model_copy(update={"status": life.job.status.model_copy(update={"goodput": stored})})
    assert life.see(10, *pods(RUN, RUN)).see(20, *pods(OVER, OVER)).seconds() == {"other": 10, "running": 10}


def test_saves_and_causes_survive_a_change_of_the_leader() -> None:
    script = ScriptSaves(3, 4.5, 60, round_saves=1, round_seconds=1.5, counted_to=60)
    begun = begin(TimeClass.RUNNING, 5.0)
    ledger = replace(begun, step=61, new_steps=59, interruptions=3, causes=Causes(1, 1, 1), script=script)
    life = Life(agents=True).hears(ledger, step=61).see(40, *pods(RUN, RUN))
    stored = life.stored
    assert (stored.saves, stored.save_seconds, stored.saved_steps, stored.new_steps) == (3, 4.5, 60, 59)
    assert (stored.pod_losses, stored.crashes, stored.hangs) == (1, 1, 1)
    life.report = None
    life.see(52, *pods(RUN, RUN))
    assert isinstance(life.update, Sync)
    found = life.update.ledger
    assert found is not None
    assert (found.script, found.causes, found.new_steps) == (ScriptSaves(3, 4.5, 60), Causes(1, 1, 1), 59)


@pytest.mark.parametrize(
    ("script", "step", "expected"),
    [
        pytest.param(ScriptSaves(), 7, 0, id="it made none"),
        pytest.param(ScriptSaves(unseen=True), 7, None, id="it may have made some"),
        pytest.param(ScriptSaves(2, 1.0, 7, unseen=True), 7, 2, id="it made some at least"),
        pytest.param(ScriptSaves(), None, None, id="no step is known"),
    ],
)
def test_the_number_of_saves(script: ScriptSaves, step: int | None, expected: int | None) -> None:
    ledger = replace(begin(TimeClass.RUNNING, 5.0), step=step, script=script)
    assert Life(agents=True).hears(ledger, step=step).see(40, *pods(RUN, RUN)).stored.saves == expected
