"""The problem of a pod, as another component reports it; and why it was lost, as a word of a closed set."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_operator.names import LossCause
from pytorchjob_operator.observed import Pod
from pytorchjob_operator.problem import PodProblem

PULL = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "train:1"'}
NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
EVICTED = {"reason": "Evicted", "message": "The node was low on resource: memory."}


def api_pod(status: dict[str, Any], *, deleting: bool = False) -> Pod:
    meta: dict[str, Any] = {"name": "x-worker-0", **({"deletionTimestamp": "2026-01-02T03:04:05Z"} if deleting else {})}
    return Pod.from_api({"metadata": meta, "status": status})


def waits(reason: str, message: str = "", name: str = "pytorch") -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason, **({"message": message} if message else {})}}}


def ended(code: int, reason: str = "Error", name: str = "pytorch", message: str = "") -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "message": message}}}


def pending(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"phase": "Pending", "initContainerStatuses": [*init], "containerStatuses": [*containers]}


def failed(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": [*containers], **status}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def unscheduled(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Pending", **condition("PodScheduled", "False", reason, message)}


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    return condition("DisruptionTarget", "True", reason, message)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"phase": "Pending"}, None, id="a pod that nobody has looked at yet"),
        pytest.param(pending(waits("ContainerCreating")), None, id="a container that is being created"),
        pytest.param(pending(waits("PodInitializing")), None, id="one that waits for the init containers"),
        pytest.param(
            pending(waits(**PULL)),
            PodProblem("ImagePullBackOff", PULL["message"], "container pytorch waiting"),
            id="an image that cannot be pulled",
        ),
        pytest.param(
            pending(waits("ErrImagePull", "not found")),
            PodProblem("ImagePullBackOff", "not found", "container pytorch waiting"),
            id="the kubelet's two words for that are one",
        ),
        pytest.param(
            pending(waits("PodInitializing"), init=(waits("CrashLoopBackOff", "back-off 10s", "setup"),)),
            PodProblem("CrashLoopBackOff", "back-off 10s", "container setup waiting"),
            id="an init container that crashes",
        ),
        pytest.param(
            {"phase": "Running", "containerStatuses": [waits("CrashLoopBackOff", "back-off 20s")]},
            PodProblem("CrashLoopBackOff", "back-off 20s", "container pytorch waiting"),
            id="a container that crashes in a running pod",
        ),
        pytest.param(
            pending(waits("CreateContainerConfigError")),
            PodProblem("CreateContainerConfigError", "CreateContainerConfigError", "container pytorch waiting"),
            id="a word without a sentence",
        ),
        pytest.param(
            unscheduled("Unschedulable", NO_ROOM),
            PodProblem("Unschedulable", NO_ROOM, "condition"),
            id="no room",
        ),
        pytest.param(condition("PodScheduled", "True", "", ""), None, id="scheduled"),
        pytest.param(failed(**EVICTED), PodProblem("Evicted", EVICTED["message"], "status"), id="evicted"),
        pytest.param(
            failed(ended(143), **disrupted("PreemptionByScheduler", "preempted by ns/big")),
            PodProblem("PreemptionByScheduler", "preempted by ns/big", "condition"),
            id="the scheduler wanted its place",
        ),
        pytest.param(failed(ended(1)), None, id="an exit code of the main container is told as such"),
        pytest.param(
            failed(waits("PodInitializing"), initContainerStatuses=[ended(3, name="setup", message="no data")]),
            PodProblem("Error", "no data", "container setup exitCode: 3 terminated"),
            id="an init container ended it",
        ),
        pytest.param(
            {"phase": "Succeeded", "containerStatuses": [ended(1, name="side")]}, None, id="a pod that succeeded"
        ),
    ],
)
def test_trouble(status: dict[str, Any], expected: PodProblem | None) -> None:
    assert api_pod(status).problem == expected


def test_scheduling_gates_are_named() -> None:
    gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": "example.com/quota"}]
    status = unscheduled("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")
    pod = Pod.from_api({"metadata": {"name": "x"}, "spec": {"schedulingGates": gates}, "status": status})
    assert pod.problem is not None
    assert pod.problem.message == "held by the scheduling gates kueue.x-k8s.io/topology, example.com/quota"


def test_how_the_containers_of_a_deleted_pod_end_is_no_trouble() -> None:
    assert api_pod(failed(ended(143, name="side")), deleting=True).problem is None


def test_what_kept_a_pod_waiting_is_nobodys_trouble_once_it_is_deleted() -> None:
    assert api_pod(pending(waits(**PULL)), deleting=True).problem is None


def test_words_are_bounded_and_equal_troubles_are_one() -> None:
    first, two = (api_pod(pending(waits("W" * 999, "m" * 9999))).problem for _ in range(2))
    assert first is two
    assert first is not None
    assert (len(first.reason), len(first.message)) == (128, 512)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param(failed(ended(137, "OOMKilled")), LossCause.OOM_KILLED, id="out of memory"),
        pytest.param(failed(ended(1)), LossCause.ERROR, id="the program's own exit code"),
        pytest.param(failed(ended(127)), LossCause.ERROR, id="the last of those"),
        pytest.param(failed(ended(128)), LossCause.SIGNAL, id="the first that is retried"),
        pytest.param(
            failed(ended(1, name="side"), ended(139)), LossCause.SIGNAL, id="the main container's comes first"
        ),
        pytest.param(failed(ended(0), ended(1, name="side")), LossCause.ERROR, id="else whichever ended badly"),
        pytest.param(failed(ended(137), **EVICTED), LossCause.EVICTED, id="node pressure"),
        pytest.param(failed(reason="Terminated"), LossCause.NODE_SHUTDOWN, id="the node was shut down"),
        pytest.param(failed(**disrupted("PreemptionByScheduler")), LossCause.PREEMPTED, id="preempted"),
        pytest.param(failed(**disrupted("EvictionByEvictionAPI")), LossCause.EVICTED, id="drained"),
        pytest.param(failed(**disrupted("DeletionByTaintManager")), LossCause.NODE_LOST, id="the node was tainted"),
        pytest.param(failed(**disrupted("DeletionByPodGC")), LossCause.NODE_LOST, id="the node is gone"),
        pytest.param(
            failed(reason="Preempting", **disrupted("TerminationByKubelet")),
            LossCause.PREEMPTED,
            id="the kubelet's own word is the better one",
        ),
        pytest.param(failed(reason="DeadlineExceeded"), LossCause.DEADLINE, id="the pod's own deadline"),
        pytest.param(failed(reason="OutOfnvidia.com/gpu"), LossCause.REJECTED, id="the kubelet would not start it"),
        pytest.param(failed(), LossCause.UNKNOWN, id="nobody says"),
    ],
)
def test_cause(status: dict[str, Any], cause: LossCause) -> None:
    assert api_pod(status).cause is cause


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        pytest.param({"phase": "Running"}, LossCause.DELETED, id="somebody deleted it"),
        pytest.param({"phase": "Running", **disrupted("EvictionByEvictionAPI")}, LossCause.EVICTED, id="a drain did"),
        pytest.param(
            failed(ended(143)), LossCause.DELETED, id="the exit code of a pod that is told to go says nothing"
        ),
        pytest.param({"phase": "Succeeded"}, None, id="one that succeeded was not lost"),
    ],
)
def test_cause_of_a_pod_that_is_deleted(status: dict[str, Any], cause: LossCause | None) -> None:
    assert api_pod(status, deleting=True).cause is cause


def test_the_cause_is_known_before_the_kubelet_says_that_the_pod_has_failed() -> None:
    assert api_pod({"phase": "Running", "containerStatuses": [ended(137, "OOMKilled")]}).cause is LossCause.OOM_KILLED


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
def test_a_pod_that_was_not_lost_has_no_cause(phase: str) -> None:
    assert api_pod({"phase": phase}).cause is None


def life(exits: int, *, state: str = "waiting", seconds: int = 5, code: int = 1, message: str = "") -> dict[str, Any]:
    """A pod whose container `pytorch` has ended so often, the last time after so many seconds."""
    minutes, rest = divmod(seconds, 60)
    times = {"startedAt": "2026-01-02T03:00:00Z", "finishedAt": f"2026-01-02T03:{minutes:02d}:{rest:02d}Z"}
    end = {"terminated": {"exitCode": code, "message": message, **times}}
    now = {
        "waiting": {"waiting": {"reason": "CrashLoopBackOff"}},
        "running": {"running": {"startedAt": "2026-01-02T03:30:00Z"}},
        "terminated": end,
    }[state]
    restarts = exits if state == "running" else exits - 1
    container = {"name": "pytorch", "restartCount": restarts, "state": now, "lastState": end}
    return {"phase": "Running", "containerStatuses": [container]}


BROKEN = TerminationMessage("DeviceFailed", 200, message="CUDA error").to_json()
NO_TORCH = TerminationMessage("TorchMissing", 78, message="torch cannot be imported").to_json()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(life(3), (3, 1, "", ""), id="it waits to be started again"),
        pytest.param(life(3, state="terminated"), (3, 1, "", ""), id="it has just ended"),
        pytest.param(life(3, state="running"), (3, 1, "", ""), id="it runs again"),
        pytest.param(life(1, seconds=600), None, id="it ended after ten minutes: no early exit"),
        pytest.param(life(2, code=0), None, id="success is no crash"),
        pytest.param(life(1, message="a\n  the last line \n\n"), (1, 1, "", "the last line"), id="the last line"),
        pytest.param(life(1, message='{"no": "agent"}'), (1, 1, "", '{"no": "agent"}'), id="somebody else's JSON"),
        pytest.param(
            life(1, message=NO_TORCH, code=78),
            (1, 78, "TorchMissing", "torch cannot be imported"),
            id="an agent's termination message",
        ),
        pytest.param(
            life(1, seconds=900, message=BROKEN, code=200),
            (1, 200, "DeviceFailed", "CUDA error"),
            id="a device that broke after a while",
        ),
        pytest.param(failed(ended(2)), (1, 2, "", ""), id="a container that could not start has no times"),
        pytest.param({"phase": "Running"}, None, id="nothing is known of its containers"),
    ],
)
def test_an_early_exit_is_read(status: dict[str, Any], expected: tuple[int, int, str, str] | None) -> None:
    crash = api_pod(status).crash
    assert (crash and (crash.exits, crash.code, crash.reason, crash.message)) == expected


def test_a_container_that_runs_again_says_since_when() -> None:
    crash = api_pod(life(3, state="running")).crash
    assert crash is not None
    assert crash.running_since == datetime(2026, 1, 2, 3, 30, tzinfo=UTC)
