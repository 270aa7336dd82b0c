"""`doctor` and `status` understand what a real API server, its scheduler and our operator write."""

import json
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytorchjob.cli import main
from pytorchjob.cluster.connect import connect
from pytorchjob.cluster.errors import NotInstalled
from pytorchjob.cluster.gather import gather_cluster, gather_job
from pytorchjob.cluster.options import ConnectOptions
from pytorchjob.view.causes.table import diagnose
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.apiserver.simulated import start_nodes
from tests.waiting import becomes, until, until_async

pytestmark = [pytest.mark.apiserver]

LATER = timedelta(seconds=60)
"""After this time the silence of the operator is a finding."""
BRIEF = {"startedAt": "2026-01-02T03:00:00Z", "finishedAt": "2026-01-02T03:00:05Z"}
CONTAINER = {"name": "pytorch", "image": "train:1", "imageID": "x", "ready": False, "restartCount": 0}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def in_time(later: timedelta = timedelta()) -> datetime:
    """Return this moment or a later one. The API server sets the time of creation of a job."""
    return datetime.now(UTC) + later  # noqa: TID251 - the objects of a real API server have real times


def causes(jobs: Jobs, name: str = "x", later: timedelta = LATER) -> list[str]:
    """The root causes that a diagnosis names."""
    cluster = connect(ConnectOptions(kubeconfig=str(jobs.plane.kubeconfig), namespace=jobs.namespace))
    seen = gather_job(cluster, name, in_time(later), deep=True)
    return [finding.cause.name for finding in diagnose(seen).findings]


def doctor(jobs: Jobs, *arguments: str) -> tuple[int, str]:
    """Run the command as a person does."""
    where = ["--kubeconfig", str(jobs.plane.kubeconfig), "-n", jobs.namespace]
    answer = CliRunner().invoke(main, ["doctor", *where, *arguments])
    return answer.exit_code, answer.output


async def pods_exist(kubelet: Kubelet) -> bool:
    return set(await kubelet.pods()) == {"x-master-0", "x-worker-0"}


def test_a_quota(jobs: Jobs) -> None:
    jobs.kubectl("create", "quota", "few", "--hard=pods=0")
    # The quota controller, which would write the status, does not run here.
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    jobs.kubectl("patch", "quota", "few", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    jobs.apply("x", 1)
    until(lambda: jobs.condition("x", "ReplicaFailure"))
    assert causes(jobs) == ["QuotaExceeded"]
    status, text = doctor(jobs, "x")
    assert (status, f"kubectl describe resourcequota few -n {jobs.namespace}" in text) == (1, True)


def test_pod_security(jobs: Jobs) -> None:
    jobs.kubectl("label", "namespace", jobs.namespace, *(f"{key}={value}" for key, value in RESTRICTED.items()))
    jobs.apply("x", 1)
    until(lambda: jobs.condition("x", "ReplicaFailure"))
    assert causes(jobs) == ["PodSecurity"]


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        pytest.param({"priorityClassName": "high"}, "PriorityClassMissing", id="a priority class that does not exist"),
        pytest.param({"runtimeClassName": "nvidia"}, "RuntimeClassMissing", id="a runtime class that does not exist"),
        pytest.param(
            {"restartPolicy": "OnFailure", "hostUsers": True, "nodeName": "A_B"}, "PodInvalid", id="an invalid pod"
        ),
    ],
)
def test_a_pod_that_is_refused(jobs: Jobs, spec: dict[str, Any], cause: str) -> None:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}], **spec}}
    jobs.apply("x", 1, template=template)
    until(lambda: jobs.condition("x", "ReplicaFailure"))
    assert causes(jobs) == [cause]


def test_a_suspended_job(jobs: Jobs) -> None:
    jobs.apply("x", 1, {"suspend": True})
    until(lambda: jobs.condition("x", "Suspended"))
    assert causes(jobs) == ["SuspendedByUser"]


def test_a_gang_scheduler_that_is_not_installed(jobs: Jobs) -> None:
    jobs.apply("x", 1, {"schedulingPolicy": {"gangScheduler": "some-scheduler"}})
    until(lambda: jobs.condition("x", "Waiting"))
    assert causes(jobs) == ["GangSchedulerMissing"]


async def test_an_exception(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1, restartPolicy="Never")
    await until_async(lambda: pods_exist(kubelet))
    text = "Traceback (most recent call last):\n  File 'train.py'\nModuleNotFoundError: No module named 'wandb'\n"
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": text, **BRIEF}}
    await kubelet.report("Failed", "x-worker-0", containers=[{**CONTAINER, "state": ended}])
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert causes(jobs) == ["ModuleMissing"]


async def test_a_container_out_of_memory(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1, {"backoffLimit": 1}, restartPolicy="ExitCode")
    await until_async(lambda: pods_exist(kubelet))
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", **BRIEF}}
    await kubelet.report("Failed", "x-worker-0", containers=[{**CONTAINER, "state": ended}])
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert causes(jobs) == ["OOMKilled"]


async def test_an_image_without_torch(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1)
    await until_async(lambda: pods_exist(kubelet))
    words = TerminationMessage(ExitReason.NO_TORCH, ExitCode.SETUP, message="torch cannot be imported in this image")
    ended = {"terminated": {"exitCode": int(ExitCode.SETUP), "reason": "Error", "message": words.to_json(), **BRIEF}}
    waiting = {**CONTAINER, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended}
    await kubelet.report("Running", "x-worker-0", containers=[waiting])
    await becomes(lambda: jobs.condition("x", "Failed"))
    assert causes(jobs) == ["TorchMissing"]


async def test_an_image_that_does_not_exist(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1)
    await until_async(lambda: pods_exist(kubelet))
    message = 'failed to resolve reference "docker.io/library/train:1": docker.io/library/train:1: not found'
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    await kubelet.report("Pending", containers=[{**CONTAINER, "state": waiting}])
    await becomes(lambda: jobs.condition("x", "Waiting"))
    assert causes(jobs) == ["ImageNotFound"]


async def test_a_job_that_is_well(jobs: Jobs, kubelet: Kubelet) -> None:
    jobs.apply("x", 1)
    await until_async(lambda: pods_exist(kubelet))
    started = {"running": {"startedAt": "2026-01-02T03:00:00Z"}}
    await kubelet.report("Running", containers=[{**CONTAINER, "ready": True, "state": started}])
    await becomes(lambda: jobs.condition("x", "Running"))
    assert causes(jobs) == []
    assert doctor(jobs, "x")[0] == 0


async def test_the_screen_of_a_job_that_runs(jobs: Jobs, kubelet: Kubelet) -> None:
    """No kubelet serves logs here. The screen shows everything else."""
    jobs.apply("x", 1)
    await until_async(lambda: pods_exist(kubelet))
    started = {"running": {"startedAt": "2026-01-02T03:00:00Z"}}
    await kubelet.report("Running", containers=[{**CONTAINER, "ready": True, "state": started}])
    await becomes(lambda: jobs.condition("x", "Running"))
    where = ["--kubeconfig", str(jobs.plane.kubeconfig), "-n", jobs.namespace]
    answer = CliRunner().invoke(main, ["status", "x", *where])
    assert (answer.exit_code, answer.stderr) == (0, "")
    lines = answer.output.splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == [f"PyTorchJob {jobs.namespace}/x", "State", "Reason", "Pods"]
    assert "2/2 ready, 0 restarts" in lines[3]
    assert [line.split()[2] for line in lines if "running" in line] == ["x-master-0", "x-worker-0"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane for this file alone, at first without our definition."""
    with ControlPlane(tmp_path_factory.mktemp("diagnosis")) as made:
        yield made


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Our operator, kube-scheduler, and two simulated nodes."""
    install(plane, CRD)
    start_nodes(plane, count=2)
    process = OperatorProcess(plane, tmp_path_factory.mktemp("operator")).wait_ready()
    yield process
    process.stop()


@pytest.fixture
def make_namespace(plane: ControlPlane) -> Callable[[], Jobs]:
    def make() -> Jobs:
        made = Jobs(plane, f"test-{secrets.token_hex(4)}")
        made.kubectl("create", "namespace", made.namespace)
        return made

    return make


def test_a_cluster_without_the_definition(plane: ControlPlane, make_namespace: Callable[[], Jobs]) -> None:
    """This is the first test with this control plane: later tests install the definition."""
    jobs = make_namespace()
    cluster = connect(ConnectOptions(kubeconfig=str(plane.kubeconfig), namespace=jobs.namespace))
    assert [finding.cause.name for finding in diagnose(gather_cluster(cluster, in_time())).findings] == [
        "DefinitionMissing"
    ]
    with pytest.raises(NotInstalled):
        gather_job(cluster, "x", in_time())
    assert doctor(jobs, "x")[0] == 1


def test_a_cluster_without_an_operator(plane: ControlPlane, make_namespace: Callable[[], Jobs]) -> None:
    install(plane, CRD)
    jobs = make_namespace()
    jobs.apply("x", 1)
    assert causes(jobs, later=timedelta()) == []
    assert causes(jobs) == ["OperatorMissing"]
    assert "OperatorMissing" in doctor(jobs)[1]


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        pytest.param({"requests": {"cpu": "2000"}}, "InsufficientCpu", id="more CPUs than a node has"),
        pytest.param({"requests": {"memory": "2Ti"}}, "InsufficientMemory", id="more memory than a node has"),
        pytest.param({"limits": {"nvidia.com/gpu": "1"}}, "NoSuchDevice", id="a GPU, and there is none"),
        pytest.param({"nodeSelector": {"pool": "gpu"}}, "NoMatchingNode", id="a label that no node has"),
        pytest.param({"claim": "data"}, "ClaimMissing", id="a claim that does not exist"),
    ],
)
def test_a_pod_without_a_node(
    nodes: OperatorProcess, make_namespace: Callable[[], Jobs], spec: dict[str, Any], cause: str
) -> None:
    jobs = make_namespace()
    container = {
        "name": "pytorch",
        "image": "train:1",
        "resources": {k: v for k, v in spec.items() if k in ("requests", "limits")},
    }
    pod: dict[str, Any] = {"containers": [container], "nodeSelector": spec.get("nodeSelector", {})}
    if "claim" in spec:
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": spec["claim"]}}]
    jobs.apply("x", 1, template={"spec": pod})
    until(lambda: jobs.condition("x", "Waiting"))
    assert causes(jobs, later=timedelta()) == [cause]


def _finds_no_node(jobs: Jobs) -> bool:
    """Whether the scheduler finds no node for a new pod."""
    jobs.kubectl("run", "probe", "--image=train:1")
    status = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].status}"
    found = until(lambda: jobs.kubectl("get", "pod", "probe", "-o", status))
    jobs.kubectl("delete", "pod", "probe", "--grace-period=0", "--force")
    return found == "False"


def test_nodes_with_a_taint(nodes: OperatorProcess, plane: ControlPlane, make_namespace: Callable[[], Jobs]) -> None:
    plane.kubectl("taint", "nodes", "--all", "team=vision:NoSchedule")
    jobs = make_namespace()
    try:
        until(lambda: _finds_no_node(jobs))  # the scheduler hears of the taint a moment later
        jobs.apply("x", 1)
        until(lambda: jobs.condition("x", "Waiting"))
        assert causes(jobs, later=timedelta()) == ["UntoleratedTaint"]
    finally:
        plane.kubectl("taint", "nodes", "--all", "team-")


def test_an_operator_that_went_away(
    nodes: OperatorProcess, plane: ControlPlane, make_namespace: Callable[[], Jobs]
) -> None:
    """This is the last test with this control plane: it ends the operator."""
    nodes.kill()
    jobs = make_namespace()
    jobs.apply("x", 1)
    assert causes(jobs, later=timedelta(seconds=300)) == ["OperatorMissing"]


def test_the_answer_is_quick_to_read(jobs: Jobs, tmp_path: Path) -> None:
    jobs.apply("x", 1, {"suspend": True})
    until(lambda: jobs.condition("x", "Suspended"))
    status, text = doctor(jobs, "x")
    assert status == 1
    assert len(text.splitlines()) < 12, text
