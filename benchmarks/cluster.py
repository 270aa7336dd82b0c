"""The cluster that is measured: a real control plane and scheduler, nodes and kubelets simulated by kwok.

One for each benchmark, in a directory that is removed afterwards. It measures nothing itself.
"""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pytorchjob_operator.control.apply import JOBS
from pytorchjob_operator.kube import config
from pytorchjob_operator.kube.client import ApiClient
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import OperatorProcess

Object = dict[str, Any]
USER_AGENT = "pytorchjob-benchmark"
CONNECTIONS = 32
ENDS_AFTER = "pytorchjob-benchmark/ends-after"
_NODES = 10
_NODE_MARK = {"kwok.x-k8s.io/node": "fake"}
_STAGES = Path(__file__).parent / "stages.yaml"
_POLL_SECONDS = 0.25
_PATIENCE = 300.0


@dataclass
class Cluster:
    """A running control plane with the definition of PyTorchJob, and a client of the benchmark's own."""

    plane: ControlPlane
    client: ApiClient
    directory: Path
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def namespace(self) -> str:
        """A new namespace."""
        name = f"bench-{next(self._numbers)}"
        done = self.plane.kubectl("create", "namespace", name)
        assert done.returncode == 0, done.stderr
        return name

    @asynccontextmanager
    async def operator(self, **env: str) -> AsyncIterator[OperatorProcess]:
        """A fresh operator, ready and leading, with its defaults and these variables."""
        operator = OperatorProcess(self.plane, self.directory, **env)
        try:
            await asyncio.to_thread(operator.wait_ready)
            yield operator
        finally:
            await asyncio.to_thread(operator.stop)

    async def until_cached(self, operator: OperatorProcess, pods: int) -> None:
        """Wait until the operator says that it knows so many pods."""
        metric = f"pytorchjob_operator_pods {float(pods)}"

        async def known() -> bool:
            return metric in await asyncio.to_thread(lambda: operator.http("/metrics")[1])

        await self.until(known)

    async def submit(self, job: Object) -> Object:
        """What `kubectl apply` of a new job is to the API server."""
        return await self.client.create(JOBS, job["metadata"]["namespace"], job)

    async def status(self, job: Object) -> Object:
        """The job's status now."""
        meta = job["metadata"]
        found = await self.client.get(JOBS, meta["namespace"], meta["name"])
        status: Object = found.get("status") or {}
        return status

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Poll, seldom enough not to be a load."""
        async with asyncio.timeout(_PATIENCE):
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)

    def empty(self, namespace: str) -> None:
        """Delete everything of one namespace, so that the next measurement does not carry it along."""
        jobs = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
        for deleted in (jobs, f"/api/v1/namespaces/{namespace}/pods", f"/api/v1/namespaces/{namespace}/services"):
            self.plane.kubectl("delete", "--raw", f"{deleted}?gracePeriodSeconds=0", timeout=_PATIENCE)


@asynccontextmanager
async def cluster(nodes: int = _NODES) -> AsyncIterator[Cluster]:
    """Start a cluster; with no nodes there is neither kwok nor a scheduler, and pods stay Pending."""
    with tempfile.TemporaryDirectory(prefix="pytorchjob-bench-") as where, ControlPlane(Path(where)) as plane:
        install(plane, Path(CRD))
        if nodes:
            _start_nodes(plane, nodes)
        connection = config.load({"KUBECONFIG": str(plane.kubeconfig)})
        async with ApiClient(connection, USER_AGENT) as client:
            yield Cluster(plane, client, Path(where))


def job(namespace: str, name: str, pods: int, ends_after: str | None = None, **spec: Any) -> Object:
    """A job of one Master and the rest Workers, whose pods tolerate everything and end when they are told to."""
    template: Object = {
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "image": "train:1",
                    "command": ["python", "train.py"],
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                }
            ],
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
        }
    }
    if ends_after:
        template["metadata"] = {"annotations": {ENDS_AFTER: ends_after}}
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": pods - 1, "template": template}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
    }


def _start_nodes(plane: ControlPlane, count: int) -> None:
    kubeconfig = str(plane.kubeconfig)
    scheduler = plane.directory / "scheduler.yaml"
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        # The default of 50 requests a second would measure the scheduler.
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 1000, "burst": 1000},
    }
    scheduler.write_text(yaml.safe_dump(settings))
    plane.start_program("kube-scheduler", f"--config={scheduler}", "--secure-port=0")
    plane.start_program(
        "kwok",
        f"--kubeconfig={kubeconfig}",
        f"--config={_STAGES}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={'='.join(*_NODE_MARK.items())}",
    )
    nodes = ({"name": f"node-{index}", "annotations": _NODE_MARK} for index in range(count))
    done = plane.apply(*({"apiVersion": "v1", "kind": "Node", "metadata": meta} for meta in nodes))
    assert done.returncode == 0, done.stderr
    plane.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=60s", timeout=90)
