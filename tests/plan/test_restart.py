"""What one failed pod means: v1's table (contract A.10, A.11)."""

import pytest

from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_operator.model import JobStatus, RestartPolicy
from pytorchjob_operator.model.status import UnfitPod
from pytorchjob_operator.observed import Pod, PodPhase
from pytorchjob_operator.plan import make_plan, replicas
from pytorchjob_operator.plan.restart import PodAction, Replacements, decide, replacements
from pytorchjob_operator.problem import Crash
from tests.factories import full_job, make_job, make_pod, observed, pods, workers

RUNNING, SUCCEEDED, FAILED, PENDING = PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.PENDING
ALWAYS, ON_FAILURE = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE
NEVER, EXIT_CODE = RestartPolicy.NEVER, RestartPolicy.EXIT_CODE


@pytest.mark.parametrize(
    ("policy", "phase", "deleting", "code", "decision"),
    [
        pytest.param(ON_FAILURE, RUNNING, False, None, PodAction.KEEP, id="a running pod is kept"),
        pytest.param(NEVER, PENDING, True, None, PodAction.KEEP, id="a pod that leaves before it ran has not failed"),
        pytest.param(NEVER, SUCCEEDED, True, 0, PodAction.KEEP, id="a pod that succeeded may go"),
        pytest.param(ON_FAILURE, FAILED, False, 1, PodAction.REPLACE, id="OnFailure: a failed pod is made again"),
        pytest.param(ALWAYS, FAILED, False, None, PodAction.REPLACE, id="Always: an evicted pod is made again"),
        pytest.param(NEVER, FAILED, False, 1, PodAction.END, id="Never: a failed pod ends the job"),
        pytest.param(NEVER, RUNNING, True, None, PodAction.END, id="Never: a running pod that is deleted ends the job"),
        pytest.param(ON_FAILURE, RUNNING, True, None, PodAction.WAIT, id="a terminating pod is waited for"),
        pytest.param(ON_FAILURE, FAILED, True, 1, PodAction.WAIT, id="a failed pod is not deleted twice"),
        pytest.param(EXIT_CODE, RUNNING, True, None, PodAction.WAIT, id="ExitCode: a drained pod is waited for"),
        pytest.param(EXIT_CODE, FAILED, False, 1, PodAction.END, id="ExitCode: 1 is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 127, PodAction.END, id="ExitCode: 127 is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 0, PodAction.END, id="ExitCode: 0 in a failed pod is permanent"),
        pytest.param(EXIT_CODE, FAILED, False, 128, PodAction.REPLACE, id="ExitCode: 128 is retried"),
        pytest.param(EXIT_CODE, FAILED, False, 255, PodAction.REPLACE, id="ExitCode: 255 is retried"),
        pytest.param(EXIT_CODE, FAILED, False, None, PodAction.REPLACE, id="ExitCode: an evicted pod is retried"),
    ],
)
def test_decide(policy: RestartPolicy, phase: PodPhase, deleting: bool, code: int | None, decision: PodAction) -> None:
    pod = make_pod("worker-0", phase, deleting=deleting, exit_code=code)
    decided, reason = decide(policy, pod)
    assert decided is decision
    assert reason.startswith(pod.name)


A, B = "uid-worker-0", "uid-worker-1"
TWO = {"master": None, "workers": 2}


def replaced(seen: tuple[Pod, ...], *listed: str, **case: object) -> Replacements:
    job = full_job(**{**TWO, "status": JobStatus(replacing=listed or None), **case})
    return replacements(job, replicas.compare(job, seen), seen)


@pytest.mark.parametrize(
    ("seen", "listed", "used_up", "uids", "goes"),
    [
        pytest.param(workers("Running", "Running"), (), 0, (), (), id="nothing failed"),
        pytest.param(workers("Failed", "Running"), (), 1, (A,), (), id="a failed pod is counted, and stays"),
        pytest.param(workers("Failed", "Running"), (A,), 0, (A,), (A,), id="one that is counted goes"),
        pytest.param(workers("Failed", "Failed"), (A,), 1, (A, B), (A,), id="each at its own time"),
        pytest.param(
            (make_pod("worker-0", FAILED, restarts=3),), (), 4, (A,), (), id="its containers' restarts count too"
        ),
        pytest.param(
            (make_pod("worker-0", FAILED, deleting=True),), (A,), 0, (A,), (), id="one that goes is kept in mind"
        ),
        pytest.param((make_pod("worker-0", uid="new"),), (A,), 0, (), (), id="one that is gone is not"),
        pytest.param((make_pod("worker-5", FAILED),), (), 0, (), (), id="a surplus pod is not made again"),
        pytest.param(
            (make_pod("worker-5", FAILED, deleting=True),),
            ("uid-worker-5",),
            0,
            ("uid-worker-5",),
            (),
            id="a counted pod that became surplus is kept in mind",
        ),
    ],
)
def test_replacements(
    seen: tuple[Pod, ...], listed: tuple[str, ...], used_up: int, uids: tuple[str, ...], goes: tuple[str, ...]
) -> None:
    found = replaced(seen, *listed)
    assert (found.used_up(), found.uids()) == (used_up, uids)
    assert tuple(pod.uid for pod, _ in found.deletable()) == goes


def test_no_more_pods_are_replaced_at_a_time_than_a_status_can_list() -> None:
    many = workers(*["Failed"] * 1500)
    found = replaced(many, workers=1500)
    assert (found.used_up(), len(found.uids())) == (1000, 1000)
    later = replaced(many, *found.uids(), workers=1500)
    assert (later.used_up(), later.uids()) == (0, found.uids())


def unfit(**fields: object) -> Pod:
    """worker-0, whose agent found its node unfit."""
    return make_pod("worker-0", **{"crash": Crash(1, 1, ExitReason.PREFLIGHT_FAILED), "node": "n", **fields})


def known(*seen: tuple[str, str]) -> JobStatus:
    """A status that lists these unfit pods, by replica and uid."""
    return JobStatus(unfit_pods=tuple(UnfitPod(name=f"x-{replica}", uid=uid) for replica, uid in seen))


@pytest.mark.parametrize(
    ("pod", "before", "replaced_as"),
    [
        pytest.param(unfit(), (), " on node n", id="the first one"),
        pytest.param(unfit(node=""), (), "", id="its node is unknown"),
        pytest.param(unfit(), [("worker-0", "uid-old")], " on node n", id="the second one"),
        pytest.param(unfit(), [("worker-0", "uid-old"), ("worker-0", "uid-older")], None, id="the third one stays"),
        pytest.param(unfit(), [("worker-0", "uid-old"), ("worker-0", A)], " on node n", id="it is listed itself"),
        pytest.param(unfit(), [("worker-1", "b"), ("worker-1", "c")], " on node n", id="another replica was unfit"),
        pytest.param(unfit(deleting=True, phase=PENDING), (), None, id="it is being deleted"),
        pytest.param(unfit(crash=Crash(1, 1)), (), None, id="its program failed"),
    ],
)
def test_an_unfit_pod_is_replaced(pod: Pod, before: list[tuple[str, str]], replaced_as: str | None) -> None:
    job = full_job(**{**TWO, "status": known(*before)})
    found = replacements(job, replicas.compare(job, (pod,)), (pod,)).pods
    reasons = [] if replaced_as is None else [f"the agent found it unfit for the job{replaced_as}"]
    assert found == tuple((pod, reason) for reason in reasons)


def status_of(job_status: JobStatus | None, *seen: Pod, restart: str | None = None) -> JobStatus | None:
    return make_plan(observed(make_job(status=job_status, restart=restart), *seen, seconds=60)).status


def test_a_failed_pod_is_counted_at_once_and_once() -> None:
    counted = status_of(None, *pods(RUNNING, FAILED))
    assert counted is not None
    assert (counted.restarts, counted.replacing) == (1, (A,))
    assert status_of(counted, *pods(RUNNING, FAILED)) is None


@pytest.mark.parametrize(
    ("seen", "restart"),
    [
        pytest.param(pods(SUCCEEDED, FAILED), None, id="a job that succeeds makes nothing again"),
        pytest.param(pods(FAILED, FAILED), "Never", id="nor does one that fails"),
    ],
)
def test_the_end_counts_nothing(seen: tuple[Pod, ...], restart: str | None) -> None:
    last = status_of(JobStatus(restarts=2, replacing=(A,)), *seen, restart=restart)
    assert last is not None
    assert (last.restarts, last.replacing) == (2, None)


def test_a_permanent_exit_code_ends_the_job_in_v1s_words() -> None:
    seen = (*pods(RUNNING), make_pod("worker-0", FAILED, exit_code=1))
    last = status_of(None, *seen, restart="ExitCode")
    assert last is not None
    assert last.conditions[-1].message == 'job "x" is failing because "Worker" replica(s) failed.'
    assert last.completion_time is not None
