"""The status that the pods amount to, and when it is worth a write: three writes in an ordinary life."""

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob, ReplicaStatus, ReplicaStatuses
from pytorchjob_operator.names import Reason
from pytorchjob_operator.observed import Pod, PodPhase, Refusal
from pytorchjob_operator.plan import Plan, make_plan
from pytorchjob_operator.plan.job_status import COUNTERS_DELAY, RUNNING_DELAY
from tests.factories import at, make_job, make_pod, observed, pods

RUN, DONE, BAD, WAIT = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING
Change = tuple[float, Pod]


class Life:
    """A job whose pods change at given times, planned at every change and whenever a plan asks for it."""

    def __init__(self, **case: Any) -> None:
        self.job: PyTorchJob = make_job(**case)
        self.written: list[JobStatus] = []
        self.times: list[datetime] = []
        self._pods: dict[str, Pod] = {}
        self._due: datetime | None = None
        self._plan(0)

    def through(self, changes: Iterable[Change]) -> "Life":
        """Live through these changes, and until nothing is put off."""
        for seconds, pod in sorted(changes, key=lambda change: change[0]):
            self._wake(before=at(seconds))
            self._pods[pod.name] = pod
            self._plan(seconds)
        self._wake(before=at(10_000))
        return self

    def states(self) -> list[str]:
        """What the printer column State showed, one after another."""
        return [status.conditions[-1].type.value for status in self.written]

    def _wake(self, before: datetime) -> None:
        while self._due is not None and self._due < before:
            self._plan((self._due - at(0)).total_seconds())

    def _plan(self, seconds: float) -> None:
        seen = replace(observed(self.job, *self._pods.values(), seconds=seconds), status_due=self._due)
        plan = make_plan(seen)
        self._due = plan.status_due
        if plan.status is not None:
            self.written.append(plan.status)
            self.times.append(seen.now)
            stored = PyTorchJob.model_validate({**self.job.to_api(), "status": plan.status.to_api()})
            self.job = stored


def changes(phase: PodPhase, count: int, since: float, spread: float, seed: int) -> list[Change]:
    """The Master and the workers reach a phase within `spread` seconds, in any order."""
    order = random.Random(seed)
    places = ["master-0", *(f"worker-{index}" for index in range(count - 1))]
    return [(since + order.uniform(0, spread), make_pod(who, phase)) for who in places]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 100), st.floats(0, 100))
def test_a_life_is_three_writes_whatever_starts_or_ends_first(seed: int, start: float, lasts: float) -> None:
    running = changes(RUN, 20, start, 1.9, seed)
    ending = changes(DONE, 20, start + 2 + lasts, 1.9, seed + 1)
    assert Life(workers=19).through([*running, *ending]).states() == ["Created", "Running", "Succeeded"]


def test_the_life_of_200_pods_is_three_writes() -> None:
    running, ending = changes(RUN, 200, 30, 1.9, 1), changes(DONE, 200, 600, 1.9, 2)
    assert Life(workers=199).through([*running, *ending]).states() == ["Created", "Running", "Succeeded"]


@pytest.mark.parametrize(
    ("timeline", "times"),
    [
        pytest.param([], [0], id="Created at once"),
        pytest.param([(9, "master-0"), (10, "worker-0")], [0, 10], id="Running waits for the last pod"),
        pytest.param([(9, "master-0")], [0, 11], id="but for 2 s only"),
        pytest.param([(9, "worker-0")], [0, 14], id="a counter that moved waits for 5 s"),
        pytest.param(
            [(9, "worker-0"), (13, "master-0")], [0, 13], id="all of them run: the write that was put off comes early"
        ),
    ],
)
def test_when_it_is_written(timeline: list[tuple[float, str]], times: list[float]) -> None:
    life = Life().through([(seconds, make_pod(who)) for seconds, who in timeline])
    assert life.times == [at(seconds) for seconds in times]


def test_changes_that_never_stop_do_not_put_a_write_off_for_ever() -> None:
    life = Life(workers=100).through([(10 + index, make_pod(f"worker-{index}")) for index in range(50)])
    gaps = [after - before for before, after in zip(life.times[1:], life.times[2:], strict=False)]
    assert len(gaps) > 5
    assert max(gaps) <= COUNTERS_DELAY + COUNTERS_DELAY / 5


def created(*seen: Pod, seconds: float = 60, due: float | None = None, **case: Any) -> Plan:
    """The plan for a job whose first status is written already."""
    first = make_plan(observed(make_job(**case))).status
    seen_now = observed(make_job(**case, status=first), *seen, seconds=seconds)
    return make_plan(replace(seen_now, status_due=None if due is None else at(due)))


def test_a_put_off_write_asks_to_be_woken() -> None:
    plan = created(*pods(RUN, WAIT))
    assert (plan.status, plan.wake_at) == (None, at(60) + RUNNING_DELAY)


def test_a_write_that_is_due_is_not_put_off_again() -> None:
    plan = created(*pods(RUN, WAIT), due=60)
    assert plan.status is not None
    assert (plan.wake_at, plan.status_due) == (None, None)


@pytest.mark.parametrize(
    ("seen", "case"),
    [
        pytest.param(pods(RUN, RUN), {}, id="everything runs"),
        pytest.param(pods(DONE, RUN), {}, id="it succeeded"),
        pytest.param(pods(RUN, BAD), {}, id="it restarts"),
        pytest.param(pods(WAIT, BAD), {"restart": "Never"}, id="it failed"),
    ],
)
def test_written_at_once(seen: tuple[Pod, ...], case: dict[str, Any]) -> None:
    assert created(*seen, **case).status is not None


def test_a_changed_spec_is_answered_at_once() -> None:
    first = make_plan(observed(make_job())).status
    plan = make_plan(observed(make_job(status=first, meta={"generation": 2}), *pods(WAIT, WAIT)))
    assert plan.status is not None
    assert plan.status.observed_generation == 2


def test_nothing_new_is_not_written() -> None:
    plan = created(*pods(WAIT, WAIT))
    assert plan.empty
    assert plan.reason == "Pending: 2 pods exist, 0 missing, 0 surplus; nothing to write"


SELECTOR = "training.kubeflow.org/job-name=x,training.kubeflow.org/operator-name=pytorchjob-controller"


def counters(role: str, **numbers: Any) -> ReplicaStatus:
    return ReplicaStatus(**numbers, selector=f"{SELECTOR},training.kubeflow.org/replica-type={role}")


@pytest.mark.parametrize(
    ("seen", "master", "worker"),
    [
        pytest.param(pods(RUN, RUN, RUN), {"active": 1}, {"active": 2}, id="running"),
        pytest.param(pods(RUN, BAD, RUN), {"active": 1}, {"active": 1, "failed": 1}, id="failed is not cumulative"),
        pytest.param(pods(DONE, RUN, BAD), {"succeeded": 1}, {"succeeded": 1, "failed": 1}, id="the end ends them all"),
    ],
)
def test_counters(seen: tuple[Pod, ...], master: dict[str, int], worker: dict[str, int]) -> None:
    status = created(*seen, workers=2).status
    assert status is not None
    assert status.replica_statuses == ReplicaStatuses(
        master=counters("master", **master), worker=counters("worker", **worker)
    )


def test_times_of_a_life() -> None:
    life = Life().through([(9.5, make_pod("master-0")), (20.7, make_pod("master-0", DONE))])
    assert [(status.start_time, status.completion_time) for status in life.written] == [
        (at(0), None),
        (at(0), None),
        (at(0), at(20)),
    ]
    assert {status.last_reconcile_time for status in life.written} == {None}


def test_a_status_comes_back_from_the_api_server_as_it_went() -> None:
    status = Life().through([(1, make_pod("master-0")), (2, make_pod("worker-0", BAD))]).written[-1]
    assert JobStatus.model_validate(status.to_api()) == status


def test_the_sequence_of_a_restart() -> None:
    life = Life().through(
        [
            (1, make_pod("worker-0")),
            (2, make_pod("master-0")),
            (10, make_pod("worker-0", deleting=True)),
            (20, make_pod("worker-0", WAIT)),
            (21, make_pod("worker-0")),
            (30, make_pod("master-0", DONE)),
        ]
    )
    assert life.states() == ["Created", "Running", "Restarting", "Running", "Running", "Succeeded"]


REFUSED = Refusal(Reason.FAILED_CREATE_POD, 'pods "x-worker-0" is forbidden: exceeded quota')


def refused(refusal: Refusal | None, status: JobStatus | None = None) -> JobStatus | None:
    return make_plan(observed(make_job(status=status), *pods(WAIT), seconds=9, refusal=refusal)).status


def test_a_refusal_is_shown_in_the_servers_words_until_it_is_over() -> None:
    shown = refused(REFUSED)
    assert shown is not None
    assert (shown.conditions[-1].type, shown.conditions[-1].message) == (ConditionType.REPLICA_FAILURE, REFUSED.message)
    assert refused(REFUSED, shown) is None
    over = refused(None, shown)
    assert over is not None
    assert [condition.type for condition in over.conditions] == [ConditionType.CREATED]


def test_other_words_replace_the_refusal() -> None:
    again = refused(replace(REFUSED, message="no such priority class"), refused(REFUSED))
    assert again is not None
    assert [condition.message for condition in again.conditions][1:] == ["no such priority class"]
