"""The real Kueue as a process; it needs a control plane of its own, because its webhooks catch every new pod.

It runs as released, from its own manifests. Two things are made up for, which a cluster does. The Service of its
webhooks leads to this machine, and their certificate is written into a folder, as the kubelet mounts it.
"""

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.apiserver.cluster import BIN, ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.apiserver.operator_process import Jobs, OperatorProcess
from tests.apiserver.simulated import start_nodes
from tests.ports import free_port
from tests.waiting import until

Object = dict[str, Any]

PROGRAM = BIN / "kueue"
MANIFESTS = BIN / "kueue.yaml"
BUILT = PROGRAM.is_file() and MANIFESTS.is_file()
PYTORCHJOB = "kubeflow.org/pytorchjob"
POD = "pod"
_NAMESPACE = "kueue-system"
_SECRET = "kueue-webhook-server-cert"
_SERVICE = "kueue-webhook-service"
_CONFIGURATION = "kueue-manager-config"
_INSTALLED = ("Namespace", "CustomResourceDefinition", "Secret")
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class KueueProcess:
    """Kueue's manager, with these frameworks."""

    def __init__(self, plane: ControlPlane, directory: Path, frameworks: Sequence[str]) -> None:
        self._plane = plane
        self._port = free_port()
        self._health = f"127.0.0.1:{free_port()}"
        self._certificates = directory / "kueue-certificates"
        self._certificates.mkdir()
        self._settings = directory / "kueue-settings.yaml"
        self.log_file = directory / "kueue.log"
        self._install(list(frameworks))
        self._process = self._start()

    def _install(self, frameworks: list[str]) -> None:
        objects = [one for one in yaml.load_all(MANIFESTS.read_bytes(), yaml.CSafeLoader) if one]
        given = next(one for one in objects if one["metadata"]["name"] == _CONFIGURATION)
        self._settings.write_text(yaml.safe_dump(self._configuration(given, frameworks)))
        _lead_to(objects, self._port)
        self._apply(*(one for one in objects if one["kind"] in _INSTALLED), _service())
        self._apply(*(one for one in objects if one["kind"] in _WEBHOOKS))

    def _configuration(self, given: Object, frameworks: list[str]) -> Object:
        """Return its own configuration, with this test's addresses, folder and frameworks."""
        (text,) = given["data"].values()
        return {
            **yaml.safe_load(text),
            "health": {"healthProbeBindAddress": self._health},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
            "integrations": {"frameworks": frameworks},
        }

    def _apply(self, *objects: Object) -> None:
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        done = self._plane.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
        assert done.returncode == 0, done.stderr

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["setpriv", "--pdeathsig", "KILL", str(PROGRAM), f"--config={self._settings}", "--zap-log-level=3"]
        env = {**os.environ, "KUBECONFIG": str(self._plane.kubeconfig)}
        with self.log_file.open("ab") as log:
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def wait_ready(self) -> "KueueProcess":
        """Wait until its webhooks answer."""
        until(self._secret, story=lambda: self.log[-3000:])
        for name, content in self._secret().items():
            (self._certificates / name).write_bytes(base64.b64decode(content))
        until(self._ready, story=lambda: self.log[-3000:])
        return self

    def _secret(self) -> Object:
        found: Object = self._plane.get("-n", _NAMESPACE, "secret", _SECRET).get("data", {})
        return found

    def _ready(self) -> bool:
        assert self._process.poll() is None, f"Kueue ended with {self._process.returncode}: {self.log[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://{self._health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.HTTPError, OSError):
            return False

    def stop(self) -> None:
        """End it as the kubelet does."""
        ended = self._process.poll()
        self._process.terminate()
        self._process.wait(30)
        assert ended is None, f"Kueue ended with {ended}: {self.log[-3000:]}"


def add_queue(jobs: Jobs, cpus: int) -> None:
    """Give the namespace the queue `q` with this quota of processors; a job of the class `high` may evict others."""
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpus}]}
    cluster_queue = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
    }
    name = jobs.namespace
    made = jobs.plane.apply(
        _kueue("ResourceFlavor", {"name": "default"}, spec={}),
        _kueue("WorkloadPriorityClass", {"name": "high"}, value=1000),
        _kueue("ClusterQueue", {"name": name}, spec=cluster_queue),
        _kueue("LocalQueue", {"name": "q", "namespace": name}, spec={"clusterQueue": name}),
    )
    assert made.returncode == 0, made.stderr


def _kueue(kind: str, metadata: Object, **rest: Any) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **rest}


def _service() -> Object:
    """The API server asks its webhooks here; the certificate is for the name of the Service."""
    metadata = {"name": _SERVICE, "namespace": _NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ExternalName", "externalName": "localhost"},
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
def serving(directory: Path, *frameworks: str) -> Iterator[ControlPlane]:
    """A control plane with simulated nodes, our definition, this operator, and Kueue with these frameworks."""
    with ControlPlane(directory) as plane, ExitStack() as stack:
        install(plane, CRD)
        kueue = KueueProcess(plane, directory, frameworks)
        stack.callback(kueue.stop)
        kueue.wait_ready()
        start_nodes(plane, count=2)
        operator = OperatorProcess(plane, directory, "--no-leader-elect").wait_ready()
        stack.callback(operator.stop)
        yield plane


def submit(
    jobs: Jobs, name: str, workers: int = 1, labels: Object | None = None, pods: Object | None = None, **policy: Any
) -> None:
    """Submit a job whose pods ask for one processor each; `pods` is the metadata of its templates."""
    container = {"name": "pytorch", "image": "train:1", "resources": {"requests": {"cpu": 1}}}
    template = {"metadata": pods or {}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    restart = policy.pop("restart", "OnFailure")
    roles = {
        role: {"replicas": count, "restartPolicy": restart, "template": template}
        for role, count in (("Master", 1), ("Worker", workers))
    }
    metadata = {"name": name, "namespace": jobs.namespace, "labels": labels or {}}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": policy}
    made = jobs.plane.apply({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec})
    assert made.returncode == 0, made.stderr


def workload(jobs: Jobs, name: str) -> Object:
    """Return the Workload of a pod group, or that of a job by the job's name; empty while there is none."""
    found = jobs.plane.get("-n", jobs.namespace, "workloads.kueue.x-k8s.io")["items"]
    owned = [one for one in found if one["metadata"]["name"] == name or _owner(one) == name]
    return owned[0] if owned else {}


def holds(found: Object, condition: str) -> bool:
    """Whether a Workload has this condition, and it is True."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _owner(found: Object) -> str:
    owners = found["metadata"].get("ownerReferences", [])
    return next((str(one["name"]) for one in owners if one["kind"] == "PyTorchJob"), "")
