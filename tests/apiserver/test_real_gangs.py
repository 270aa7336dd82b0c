"""Gangs of real schedulers: Kubernetes 1.37's own, and scheduler-plugins' coscheduling. Nodes and pods are simulated.

A pod asks for more than half of a node, so a cluster has room for as many pods as it has nodes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import BIN, ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Jobs, OperatorProcess
from tests.apiserver.simulated import add_nodes, start_nodes
from tests.waiting import becomes, until

NEWER = BIN / "1.37"
OLDEST = BIN / "1.31"
PLUGINS = BIN / "scheduler-plugins"
PROFILE = "batch"
GATE = "GenericWorkload=true"
SERVED = "--runtime-config=scheduling.k8s.io/v1beta1=true"
NODES = 63
pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.long,
    pytest.mark.skipif(
        not all(program.is_file() for program in (PLUGINS, NEWER / "kube-scheduler", OLDEST / "kube-scheduler")),
        reason="the schedulers are not built: run `make binaries-gangs`",
    ),
]


@dataclass(frozen=True)
class Stand:
    """A control plane whose scheduler knows gangs, and how jobs name it."""

    plane: ControlPlane
    scheduler: str


@contextmanager
def kubernetes(directory: Path, *options: str, gates: str = GATE, binaries: Path = NEWER) -> Iterator[ControlPlane]:
    """Kubernetes 1.37, or another version."""
    controllers = ["podgroup-protection-controller"] if gates else []
    with ControlPlane(directory, binaries, options, gates, controllers) as plane:
        yield plane


@contextmanager
def native(directory: Path) -> Iterator[Stand]:
    """Kubernetes' own gangs, with the gate."""
    with kubernetes(directory, SERVED) as plane:
        start_nodes(plane, NODES)
        yield Stand(plane, "native")


@contextmanager
def coscheduling(directory: Path) -> Iterator[Stand]:
    """The default version with a second scheduler."""
    with ControlPlane(directory) as plane:
        resources = BIN / "podgroups" / "scheduling.x-k8s.io_podgroups.yaml"
        plane.kubectl("apply", "-f", str(resources))
        until(lambda: plane.kubectl("get", "podgroups.scheduling.x-k8s.io").returncode == 0)
        start_nodes(plane, NODES)
        settings = directory / "coscheduling.yaml"
        settings.write_text(_SETTINGS.format(kubeconfig=plane.kubeconfig, profile=PROFILE))
        plane.start_program("scheduler-plugins", f"--config={settings}", "--secure-port=0")
        yield Stand(plane, PROFILE)


_SETTINGS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 1000, burst: 1000}}
profiles:
  - schedulerName: {profile}
    plugins:
      multiPoint: {{enabled: [{{name: Coscheduling}}]}}
      queueSort: {{enabled: [{{name: Coscheduling}}], disabled: [{{name: "*"}}]}}
    pluginConfig:
      - {{name: Coscheduling, args: {{permitWaitingTimeSeconds: 5}}}}
"""


@pytest.fixture(scope="module", params=[native, coscheduling], ids=["Kubernetes 1.37", "coscheduling"])
def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with request.param(tmp_path_factory.mktemp("gangs")) as made:
        yield made


@pytest.fixture(scope="module")
def control_plane(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """It has our operator too."""
    with operator(stand.plane, tmp_path_factory.mktemp("operator")):
        yield stand.plane


@contextmanager
def operator(plane: ControlPlane, directory: Path) -> Iterator[OperatorProcess]:
    install(plane, CRD)
    process = OperatorProcess(plane, directory, "--no-leader-elect").wait_ready()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
def jobs(control_plane: ControlPlane, make_jobs: Callable[[], Jobs]) -> Jobs:
    return make_jobs()


def submit(jobs: Jobs, name: str, scheduler: str, workers: int, **spec: Any) -> None:
    """Submit a job of workers, each of which fills a node."""
    container = {"name": "pytorch", "image": "train:1", "resources": {"requests": {"cpu": "600"}}}
    worker = {
        "replicas": workers,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
    }
    made = jobs.plane.apply(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": jobs.namespace},
            "spec": {
                "pytorchReplicaSpecs": {"Worker": worker},
                "runPolicy": {"schedulingPolicy": {"gangScheduler": scheduler}},
                **spec,
            },
        }
    )
    assert made.returncode == 0, made.stderr


def pods(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = jobs.plane.get("-n", jobs.namespace, "pods")["items"]
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-worker-")]


def bound(jobs: Jobs, name: str) -> int:
    """How many pods have a node."""
    return sum("nodeName" in pod["spec"] for pod in pods(jobs, name))


def waits(jobs: Jobs, name: str) -> str:
    """Why the job waits."""
    found = jobs.condition(name, "Waiting")
    return str(found["reason"]) if found else ""


def tried(jobs: Jobs, name: str) -> bool:
    """Whether the scheduler has found no place for a pod of the gang."""
    conditions = [each for pod in pods(jobs, name) for each in pod.get("status", {}).get("conditions", ())]
    return any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions)


async def test_a_gang_without_room_for_its_last_pod_has_no_pod_on_any_node(jobs: Jobs, stand: Stand) -> None:
    nodes = len(stand.plane.get("nodes")["items"])
    submit(jobs, "x", stand.scheduler, nodes + 1)
    await becomes(lambda: len(pods(jobs, "x")) == nodes + 1 and tried(jobs, "x"))
    await becomes(lambda: waits(jobs, "x") in ("PodGroupUnschedulable", "Unschedulable"))
    assert bound(jobs, "x") == 0
    add_nodes(stand.plane, range(nodes, nodes + 1))
    await becomes(lambda: bound(jobs, "x") == nodes + 1)
    await becomes(lambda: jobs.condition("x", "Running"))
    jobs.kubectl("delete", "pytorchjob", "x")
    await becomes(lambda: not pods(jobs, "x"))


async def test_an_elastic_job_starts_with_room_for_its_minimum(jobs: Jobs, stand: Stand) -> None:
    nodes = len(stand.plane.get("nodes")["items"])
    elastic = {"minReplicas": nodes - 2, "maxReplicas": nodes + 4}
    submit(jobs, "x", stand.scheduler, nodes + 4, elasticPolicy=elastic)
    await becomes(lambda: bound(jobs, "x") == nodes)
    await becomes(lambda: jobs.condition("x", "Running"))
    jobs.kubectl("delete", "pytorchjob", "x")
    await becomes(lambda: not pods(jobs, "x"))


@pytest.mark.parametrize(
    ("binaries", "options", "gates"),
    [
        pytest.param(OLDEST, (), "", id="1.31"),
        pytest.param(BIN, (), "", id="the default version"),
        pytest.param(NEWER, (SERVED,), "", id="1.37 without its gate"),
    ],
)
async def test_without_gangs_of_kubernetes_own_no_pod_is_made_and_other_jobs_run(
    tmp_path: Path, binaries: Path, options: tuple[str, ...], gates: str
) -> None:
    with kubernetes(tmp_path, *options, gates=gates, binaries=binaries) as plane, operator(plane, tmp_path):
        start_nodes(plane, 2)
        jobs = Jobs(plane, "default")
        submit(jobs, "x", "native", 2)
        submit(jobs, "other", "none", 2)
        await becomes(lambda: waits(jobs, "x") == "GangSchedulerUnavailable")
        await becomes(lambda: jobs.condition("other", "Running"))
        assert pods(jobs, "x") == []
