"""The condition Waiting: what a job that does not run waits for, in one word and one sentence, as long as it does."""

from dataclasses import replace

import pytest

from pytorchjob_operator.model import ConditionType, JobStatus
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan
from pytorchjob_operator.problem import PodProblem
from tests.factories import condition, make_job, make_pod, observed

PENDING, RUN, BAD = PodPhase.PENDING, PodPhase.RUNNING, PodPhase.FAILED
PULL = PodProblem("ImagePullBackOff", "no such image", "container pytorch waiting")
NO_ROOM = PodProblem("Unschedulable", "0/3 nodes are available", "condition")
EVICTED = PodProblem("Evicted", "the node was low on memory", "status")
CREATED = JobStatus(conditions=(condition(ConditionType.CREATED),))
WAITED = JobStatus(conditions=(*CREATED.conditions, condition(ConditionType.WAITING, reason="Unschedulable")))
RUNNING = JobStatus(conditions=(*CREATED.conditions, condition(ConditionType.RUNNING)))


def after(stored: JobStatus, *pods: Pod) -> JobStatus:
    """The status after this observation, once every delay is over."""
    seen = observed(make_job(workers=3, status=stored), *pods)
    return make_plan(replace(seen, status_due=seen.now)).status or stored


def pod(who: str, phase: PodPhase = PENDING, problem: PodProblem | None = None, **fields: bool) -> Pod:
    return make_pod(who, phase, problem=problem, **fields)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod("master-0")], None, id="pods that merely start are no trouble"),
        pytest.param(
            [pod("master-0", problem=PULL)],
            ("ImagePullBackOff", "pod x-master-0: no such image"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            [pod("master-0"), pod("worker-1", problem=NO_ROOM)],
            ("Unschedulable", "pod x-worker-1: 0/3 nodes are available"),
            id="a pod that has no node",
        ),
        pytest.param(
            [pod("worker-0", problem=NO_ROOM), pod("worker-1", problem=NO_ROOM)],
            ("Unschedulable", "pod x-worker-0: 0/3 nodes are available (and 1 more)"),
            id="two pods that have no node",
        ),
        pytest.param(
            [pod("master-0", problem=PULL), *(pod(f"worker-{index}", problem=NO_ROOM) for index in (2, 0, 1))],
            ("Unschedulable", "pod x-worker-0: 0/3 nodes are available (and 2 more)"),
            id="what most of them have, told of the first",
        ),
        pytest.param(
            [pod("master-0", RUN), pod("worker-0", problem=NO_ROOM)], None, id="a job that runs waits for nothing"
        ),
        pytest.param([pod("worker-0", BAD, EVICTED)], None, id="a pod that is to be made again is not waited for"),
        pytest.param([pod("worker-0", PENDING, EVICTED, deleting=True)], None, id="nor one that is going"),
    ],
)
def test_waiting(pods: list[Pod], expected: tuple[str, str] | None) -> None:
    found = after(CREATED, *pods).condition(ConditionType.WAITING)
    assert (None if found is None else (found.reason, found.message)) == expected


def test_it_goes_when_the_trouble_goes() -> None:
    assert after(WAITED, pod("master-0")).condition(ConditionType.WAITING) is None


def test_it_goes_when_the_job_runs() -> None:
    status = after(WAITED, pod("master-0", RUN), pod("worker-0", problem=NO_ROOM))
    assert [condition.type for condition in status.conditions] == [ConditionType.CREATED, ConditionType.RUNNING]


def test_another_trouble_takes_its_place_and_the_same_one_keeps_its_time() -> None:
    other = after(WAITED, pod("master-0", problem=PULL)).condition(ConditionType.WAITING)
    same = after(WAITED, pod("master-0", problem=NO_ROOM)).condition(ConditionType.WAITING)
    assert other is not None
    assert (other.reason, same) == ("ImagePullBackOff", WAITED.condition(ConditionType.WAITING))
