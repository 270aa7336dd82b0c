"""The operator as a process of its own, as users run it; the hands of the kubelet that is not there; the audit log."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pytorchjob_operator.kube.client import ApiClient, Scope
from pytorchjob_operator.kube.resource import PODS
from tests.apiserver.cluster import ControlPlane
from tests.factories import make_template
from tests.ports import free_port
from tests.processes import start
from tests.waiting import until

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
USER_AGENT = "pytorchjob-operator/"


class OperatorProcess:
    """`python -m pytorchjob_operator` against a control plane; it ends with this process at the latest."""

    def __init__(self, plane: ControlPlane, directory: Path, *options: str, **env: str) -> None:
        self._port = free_port()
        self._options = options
        self._env = {
            "PYTHONPATH": str(ROOT / "operator"),
            "KUBECONFIG": str(plane.kubeconfig),
            "PYTORCHJOB_HTTP_PORT": str(self._port),
            **env,
        }
        self.log_file = directory / f"operator-{self._port}.log"
        self.lease = env.get("PYTORCHJOB_LEASE_NAME", "pytorchjob-operator")
        if "--no-leader-elect" not in options:
            _release_lease(plane, self.lease)
        self.process = self.start()

    @classmethod
    def with_coordinator(cls, plane: ControlPlane, directory: Path, **env: str) -> "OperatorProcess":
        """One with a coordinator, and with a Lease, a Secret and a port of its own."""
        name, port = f"test-{secrets.token_hex(4)}", free_port()
        return cls(
            plane,
            directory,
            PYTORCHJOB_LEASE_NAME=name,
            PYTORCHJOB_OPERATOR_COORDINATOR="true",
            PYTORCHJOB_OPERATOR_COORDINATOR_ADDRESS=f"127.0.0.1:{port}",
            PYTORCHJOB_OPERATOR_COORDINATOR_PORT=str(port),
            PYTORCHJOB_OPERATOR_COORDINATOR_SECRET=name,
            **env,
        )

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "pytorchjob_operator", *self._options]
        self.process = start(command, self.log_file, self._env)
        return self.process

    @property
    def address(self) -> str:
        """The address of its metrics and its health."""
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def http(self, path: str) -> tuple[int, str]:
        """Status and text; (0, why) where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def leads(self) -> bool:
        return "pytorchjob_operator_leader 1.0" in self.http("/metrics")[1]

    def wait_ready(self, leading: bool = True) -> "OperatorProcess":
        until(lambda: self._ready() and (self.leads or not leading), story=lambda: self.log[-3000:])
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"the operator ended with {self.process.returncode}: {self.log[-3000:]}"
        return self.http("/readyz")[0] == 200

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """End it as the kubelet does; returns the exit status."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def _release_lease(plane: ControlPlane, name: str) -> None:
    """Create the Lease as a leader leaves it, if there is none: a process that creates its Lease leads 15 s later."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }
    plane.kubectl("create", "-f", "-", stdin=json.dumps(lease))


class Asked(NamedTuple):
    """One answered request of the operator, as the API server's audit log has it."""

    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    user_agent: str


class Audit:
    """What the API server was asked since this object was made."""

    def __init__(self, plane: ControlPlane) -> None:
        self._path = plane.audit_log
        self._start = self._path.stat().st_size

    def all(self) -> list[Asked]:
        """Every answered request, whoever made it."""
        return [_asked(line) for line in self._lines() if line["stage"] == "ResponseComplete"]

    def operator(self, namespace: str | None = None) -> list[Asked]:
        """The operator's own, its Lease aside; of one namespace if it is given."""
        ours = (asked for asked in self.all() if asked.user_agent.startswith(USER_AGENT) and asked.resource != "leases")
        return [asked for asked in ours if namespace in (None, asked.namespace)]

    def counts(self, namespace: str) -> Counter[tuple[str, str]]:
        """How often the operator did what to which resource of a namespace; Events aside."""
        return Counter((asked.verb, asked.resource) for asked in self.operator(namespace) if asked.resource != "events")

    def _lines(self) -> Iterator[Object]:
        with self._path.open("rb") as file:
            if self._start:
                file.seek(self._start - 1)
                file.readline()  # the rest of a line that was in writing when this object was made
            for line in file.read().split(b"\n")[:-1]:
                yield json.loads(line)


def _asked(line: Object) -> Asked:
    about = line.get("objectRef") or {}
    resource = "/".join(part for part in (about.get("resource", ""), about.get("subresource", "")) if part)
    code = (line.get("responseStatus") or {}).get("code", 0)
    name = about.get("name", "")
    return Asked(line["verb"], resource, about.get("namespace", ""), name, code, line.get("userAgent", ""))


class Kubelet:
    """Reports the phases of one namespace's pods, by hand."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def pods(self) -> dict[str, Object]:
        """All pods by name."""
        pages = [page async for page in self._client.list(Scope(PODS, self._namespace))]
        return {pod["metadata"]["name"]: pod for page in pages for pod in page.items}

    async def report(
        self, phase: str, *names: str, exit_code: int | None = None, containers: list[Object] | None = None
    ) -> None:
        """Set the phase of these pods, of all if none is named, and what their containers do."""
        status: Object = {"phase": phase, **({"containerStatuses": containers} if containers else {})}
        if exit_code is not None:
            terminated = {"exitCode": exit_code}
            done = {"name": "pytorch", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
            status["containerStatuses"] = [{**done, "state": {"terminated": terminated}}]
        chosen = names or tuple(await self.pods())
        await asyncio.gather(*(self._report(name, status) for name in chosen))

    async def _report(self, name: str, status: Object) -> None:
        await self._client.patch_status(PODS, self._namespace, name, {"status": status})


class Jobs:
    """A user with kubectl in one namespace of his own."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def kubectl(self, *args: str) -> str:
        done = self.plane.kubectl("-n", self.namespace, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, name: str, workers: int, run_policy: Object | None = None, **role: Any) -> None:
        """One Master and some workers; keywords go into both roles."""
        template = make_template()
        roles = {
            "Master": {"replicas": 1, "template": template, **role},
            "Worker": {"replicas": workers, "template": template, **role},
        }
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"pytorchReplicaSpecs": roles, **({"runPolicy": run_policy} if run_policy else {})},
        }
        done = self.plane.apply(body)
        assert done.returncode == 0, done.stderr

    def patch(self, name: str, change: Object) -> None:
        """One update of a job."""
        self.kubectl("patch", "ptj", name, "--type=merge", "-p", json.dumps(change))

    def get(self, name: str) -> Object:
        return self.plane.read(f"/apis/kubeflow.org/v1/namespaces/{self.namespace}/pytorchjobs/{name}")

    def conditions(self, name: str) -> list[tuple[str, str]]:
        """Type and status, in the order in which they are stored."""
        found = self.get(name).get("status", {}).get("conditions", [])
        return [(condition["type"], condition["status"]) for condition in found]

    def condition(self, name: str, kind: str) -> Object | None:
        found = self.get(name).get("status", {}).get("conditions", [])
        return next(
            (condition for condition in found if condition["type"] == kind and condition["status"] == "True"), None
        )

    def count(self, *kinds: str) -> int:
        """How many objects of these kinds there are."""
        return len(self.kubectl("get", ",".join(kinds), "-o", "name").split())

    def events(self) -> list[Object]:
        found = self.plane.read(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [event for event in found if event["source"].get("component") == "pytorchjob-controller"]
