"""Pods with an injected agent of which none reports."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import ConditionType
from pytorchjob_operator.observed import CoordinatorAccess, Observed, Options, Pod
from pytorchjob_operator.plan import Plan, make_plan
from tests.factories import NOW, full_job, make_pod, make_template

OPTIONS = Options(coordinator=CoordinatorAccess("coordinator.ops.svc:29600"), agent_image="agent:1")
TEMPLATE = make_template(containers=[{"name": "pytorch", "image": "train:1", "command": ["deepspeed", "train.py"]}])
NOBODY, MEMBERS = Report(), Report(round="1.1", phase=PhaseName.RUNNING, members=2)


def pods(seconds: float = 400, **fields: Any) -> tuple[Pod, ...]:
    """The pods of the job, which have been ready for so long."""
    since = NOW - timedelta(seconds=seconds)
    ready = {"ready": True, "ready_since": since, "injected": True, **fields}
    return make_pod("master-0", **ready), make_pod("worker-0", **ready)


def planned(seen: tuple[Pod, ...], report: Report | None, inject: bool = True) -> tuple[bool, Plan]:
    """Whether the condition says that no agent reports."""
    job = full_job(template=TEMPLATE, agent={"inject": inject})
    plan = make_plan(Observed(job, NOW, pods=seen, options=OPTIONS, report=report))
    return said(plan), plan


def said(plan: Plan) -> bool:
    found = [] if plan.status is None else plan.status.conditions
    return any((each.type, each.reason) == (ConditionType.CONFIG_VALID, "AgentAbsent") for each in found)


@pytest.mark.parametrize(
    ("seen", "report", "inject", "expected"),
    [
        pytest.param(pods(), NOBODY, True, True, id="no agent has reported"),
        pytest.param(pods(200), NOBODY, True, False, id="a command may install packages first"),
        pytest.param(pods(), MEMBERS, True, False, id="they train"),
        pytest.param(pods(), Report(problems={"AgentRefused": "no"}), True, False, id="they are refused"),
        pytest.param(pods(), Report(waiting=1), True, False, id="one of them waits for the others"),
        pytest.param(pods(), None, True, False, id="the coordinator has told nothing yet"),
        pytest.param(pods(), NOBODY, False, False, id="the job wants no agent"),
        pytest.param(pods(ready=False), NOBODY, True, False, id="the pods are not ready"),
        pytest.param(pods()[:1], NOBODY, True, False, id="a pod is missing"),
    ],
)
def test_when_the_job_says_that_it_trains_without_the_agent(
    seen: tuple[Pod, ...], report: Report | None, inject: bool, expected: bool
) -> None:
    assert planned(seen, report, inject)[0] is expected


def test_the_next_pass_comes_when_the_agents_have_had_their_time_and_no_pass_after_that() -> None:
    assert planned(pods(200), NOBODY)[1].wake_at == NOW + timedelta(seconds=100)
    assert planned(pods(400), NOBODY)[1].wake_at is None


@pytest.mark.parametrize(("report", "stays"), [(NOBODY, True), (MEMBERS, False)])
def test_once_said_it_stays_until_an_agent_reports(report: Report, stays: bool) -> None:
    _, plan = planned(pods(), NOBODY)
    assert plan.status is not None
    job = full_job(template=TEMPLATE, agent={"inject": True}).model_copy(update={"status": plan.status})
    ended = tuple(replace(pod, ready=False, ready_since=None) for pod in pods())
    later = make_plan(Observed(job, NOW + timedelta(seconds=60), pods=ended, options=OPTIONS, report=report))
    assert (later.status is None or said(later)) is stays
