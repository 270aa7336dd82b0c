"""The real Kueue as a process; it needs a control plane of its own, because its webhooks catch every new pod.

It runs from its own manifests. One thing more is made up for: the Service of its webhooks leads to this machine.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from tests.apiserver.cluster import BIN, ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Jobs, Kubelet, OperatorProcess
from tests.apiserver.simulated import start_nodes
from tests.apiserver.webhook_process import Certificate, Cluster, WebhookProcess
from tests.ports import free_port

Object = dict[str, Any]

PROGRAM = BIN / "kueue"
MANIFESTS = BIN / "kueue.yaml"
BUILT = PROGRAM.is_file() and MANIFESTS.is_file()
PYTORCHJOB = "kubeflow.org/pytorchjob"
EXTERNAL = "PyTorchJob.v1.kubeflow.org"
POD = "pod"
PREFIX = "kueue.x-k8s.io/"
LABEL_PRIORITY = f"{PREFIX}priority-class"
QUEUE, HIGH = "q", "high"
"""The queue of `jobs`, and a class of priority whose jobs may evict others."""
MARKS = [
    pytest.mark.apiserver,
    pytest.mark.long,
    pytest.mark.skipif(not BUILT, reason="Kueue is not built: run `make binaries-kueue`"),
]
"""Of a file whose tests need Kueue."""
_FLAVOR = "default"
_WORKLOADS = "workloads.kueue.x-k8s.io"
_NAMESPACE = "kueue-system"
_SECRET = "kueue-webhook-server-cert"
_SERVICE = "kueue-webhook-service"
_PLACES = "kueue-visibility-server"
_PLACES_FOLDER = Path("/visibility")
"""Where it writes the certificate of the server that tells places in queues; the path cannot be chosen."""
_CONFIGURATION = "kueue-manager-config"
_INSTALLED = ("Namespace", "CustomResourceDefinition", "Secret")
_AGGREGATED = "APIService"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class KueueProcess(WebhookProcess):
    """Kueue's manager, with these frameworks; `external`: it leaves PyTorchJobs' Workloads to their operator.

    `settings`: fields of its configuration. `address`: of this machine, as the API server reaches it. `places`: it
    serves places in queues, which needs an API server with a front proxy, and root.
    """

    def __init__(
        self,
        plane: Cluster,
        directory: Path,
        frameworks: Sequence[str],
        external: bool = False,
        address: str = "127.0.0.1",
        places: bool = False,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._external, self._address, self._given = external, address, settings
        self._places_port = free_port() if places else None
        self._made_folder = places and not _PLACES_FOLDER.exists()
        self._port = free_port()
        self._certificates = directory / "kueue-certificates"
        self._certificates.mkdir()
        self._settings = directory / "kueue-settings.yaml"
        super().__init__(plane, directory / "kueue.log", Certificate(_NAMESPACE, _SECRET, self._certificates))
        self._install(list(frameworks))
        self.start(PROGRAM, f"--config={self._settings}", f"--kubeconfig={plane.kubeconfig}", "--zap-log-level=3")

    def remove(self) -> None:
        """Remove what it has installed, its webhooks first, so that nothing waits for it."""
        if self._made_folder:
            shutil.rmtree(_PLACES_FOLDER)
        objects = [found for found in yaml.load_all(MANIFESTS.read_bytes(), yaml.CSafeLoader) if found]
        for kinds in ((*_WEBHOOKS, _AGGREGATED), _INSTALLED):
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*_of_kinds(objects, kinds)]})
            done = self._plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=listed)
            assert done.returncode == 0, done.stderr

    def _install(self, frameworks: list[str]) -> None:
        objects = [found for found in yaml.load_all(MANIFESTS.read_bytes(), yaml.CSafeLoader) if found]
        given = next(found for found in objects if found["metadata"]["name"] == _CONFIGURATION)
        self._settings.write_text(yaml.safe_dump(self._configuration(given, frameworks)))
        _lead_to(objects, self._port)
        self._apply(*_of_kinds(objects, _INSTALLED), _service(_SERVICE, self._address))
        if self._places_port is not None:
            served = [*_of_kinds(objects, (_AGGREGATED,))]
            for each in served:
                each["spec"]["service"]["port"] = self._places_port
            self._apply(*served, _service(_PLACES, self._address))
        self._apply(*_of_kinds(objects, _WEBHOOKS))

    def _configuration(self, given: Object, frameworks: list[str]) -> Object:
        """Return its own configuration, with this test's addresses, folder and frameworks."""
        (text,) = given["data"].values()
        return {
            **yaml.safe_load(text),
            "health": {"healthProbeBindAddress": self.health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": self._address, "port": self._port, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": self._places_port is not None},
            **({"visibilityServer": {"bindPort": self._places_port}} if self._places_port is not None else {}),
            "integrations": {
                "frameworks": frameworks,
                **({"externalFrameworks": [EXTERNAL]} if self._external else {}),
            },
            **self._given,
        }

    def _apply(self, *objects: Object) -> None:
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        done = self._plane.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
        assert done.returncode == 0, done.stderr


def _of_kinds(objects: Sequence[Object], kinds: Sequence[str]) -> Iterator[Object]:
    return (found for found in objects if found["kind"] in kinds)


@pytest.fixture
def jobs(make_jobs: Callable[[], Jobs]) -> Jobs:
    """A namespace with a queue of three processors."""
    made = make_jobs()
    _add_queue(made, cpus=3)
    return made


def _add_queue(jobs: Jobs, cpus: int) -> None:
    made = jobs.plane.apply(flavor(), resource("WorkloadPriorityClass", {"name": HIGH}, value=1000))
    assert made.returncode == 0, made.stderr
    add_queue(jobs, QUEUE, cpus)


def add_queue(jobs: Jobs, name: str, cpus: int, **spec: Any) -> None:
    """Add a queue of the job's namespace with its own ClusterQueue, or change it; keywords go into the latter."""
    made = jobs.plane.apply(*queue(jobs.namespace, name, cpus, **spec))
    assert made.returncode == 0, made.stderr


def flavor(name: str = _FLAVOR, **spec: Any) -> Object:
    """A flavor; that of most queues has no name of its own."""
    return resource("ResourceFlavor", {"name": name}, spec=spec)


def topology(name: str, *labels: str) -> Object:
    """A hierarchy of places, by the labels of nodes that name them, the widest first."""
    return resource("Topology", {"name": name}, spec={"levels": [{"nodeLabel": label} for label in labels]})


def queue(namespace: str, name: str, cpus: int | str, *, flavor: str = _FLAVOR, **spec: Any) -> tuple[Object, Object]:
    """A queue of a namespace, and its own ClusterQueue, into which keywords go."""
    offers = {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpus}]}
    cluster_queue = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [offers]}],
        **spec,
    }
    whole = f"{namespace}-{name}"
    return (
        resource("ClusterQueue", {"name": whole}, spec=cluster_queue),
        resource("LocalQueue", {"name": name, "namespace": namespace}, spec={"clusterQueue": whole}),
    )


def resource(kind: str, metadata: Object, **rest: Any) -> Object:
    return {"apiVersion": f"{PREFIX}v1beta2", "kind": kind, "metadata": metadata, **rest}


def _service(name: str, address: str) -> Object:
    """The API server asks here; the certificate of the webhooks is for the name of their Service."""
    metadata = {"name": name, "namespace": _NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ExternalName", "externalName": address},
    }


def _lead_to(found: Any, port: int) -> None:
    """Set the port wherever a webhook's Service is named."""
    if isinstance(found, dict):
        if found.get("name") == _SERVICE and "path" in found:
            found["port"] = port
        found = [*found.values()]
    if isinstance(found, list):
        for part in found:
            _lead_to(part, port)


@contextmanager
def serving(
    directory: Path, *frameworks: str, external: bool = False, operated: bool = True, **settings: Any
) -> Iterator[ControlPlane]:
    """A control plane with simulated nodes, our definition, this operator, and Kueue with these frameworks.

    `external`: Kueue leaves the Workloads of PyTorchJobs to the operator. `operated` false: the test starts that.
    Keywords are fields of Kueue's configuration.
    """
    with ControlPlane(directory) as plane, ExitStack() as stack:
        install(plane, CRD)
        kueue = KueueProcess(plane, directory, frameworks, external, settings=settings)
        stack.callback(kueue.stop)
        kueue.wait_ready()
        start_nodes(plane, count=2)
        if operated:
            stack.callback(operator(plane, directory, external=external).wait_ready().stop)
        yield plane


def operator(plane: ControlPlane, directory: Path, *, external: bool) -> OperatorProcess:
    """Start this operator beside Kueue."""
    env = {"PYTORCHJOB_KUEUE": "true"} if external else {}
    return OperatorProcess(plane, directory, "--no-leader-elect", **env)


def submit(
    jobs: Jobs,
    name: str,
    workers: int = 1,
    labels: Object | None = None,
    pods: Object | None = None,
    master: int = 1,
    elastic: Object | None = None,
    cpus: int = 1,
    managed_by: str | None = None,
    **policy: Any,
) -> None:
    """Submit a job whose pods ask for so many processors each; `pods` is the metadata of its templates."""
    container = {"name": "pytorch", "image": "train:1", "resources": {"requests": {"cpu": cpus}}}
    template = {"metadata": pods or {}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    restart = policy.pop("restart", "OnFailure")
    roles = {
        role: {"replicas": count, "restartPolicy": restart, "template": template}
        for role, count in (("Master", master), ("Worker", workers))
        if count
    }
    metadata = {"name": name, "namespace": jobs.namespace, "labels": labels or {}}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": policy, **({"elasticPolicy": elastic} if elastic else {})}
    spec |= {"managedBy": managed_by} if managed_by else {}
    made = jobs.plane.apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec})
    assert made.returncode == 0, made.stderr


def workload(jobs: Jobs, name: str) -> Object:
    """Return the Workload of a pod group, or that of a job by the job's name; empty while there is none."""
    found = jobs.plane.get("-n", jobs.namespace, _WORKLOADS)["items"]
    owned = [entry for entry in found if entry["metadata"]["name"] == name or _owner(entry) == name]
    return owned[0] if owned else {}


async def workers(kubelet: Kubelet, job: str) -> list[str]:
    """Return the names of a job's worker pods."""
    return [name for name in await kubelet.pods() if name.startswith(f"{job}-worker-")]


async def have(kubelet: Kubelet, job: str, count: int) -> bool:
    """Whether a job has so many worker pods."""
    return len(await workers(kubelet, job)) == count


def delete_workload(jobs: Jobs, name: str) -> None:
    """Delete the Workload of a pod group, as a person does."""
    jobs.kubectl("delete", _WORKLOADS, name, "--wait=false")


def holds(found: Object, condition: str) -> bool:
    """Whether a Workload has this condition, and it is True."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def _owner(found: Object) -> str:
    owners = found["metadata"].get("ownerReferences", [])
    return next((str(owner["name"]) for owner in owners if owner["kind"] == "PyTorchJob"), "")
