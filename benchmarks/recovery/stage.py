"""Where it is played: the operator, a namespace, the store's pod, and a job whose lines arrive here as it trains.

It measures nothing and decides nothing.
"""

import itertools
import json
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar

from benchmarks.recovery.contenders import RESTRICTED, WORKERS, Contender, job
from benchmarks.recovery.lines import Group, Journal
from e2e.conftest import KUBECONFIG, SYSTEM, fresh_namespace, install, program
from e2e.kubectl import Kubectl, until

T = TypeVar("T")
HERE = Path(__file__).parent
PORTS = (8000, 8001)
_READ_SECONDS = 0.2
_START_SECONDS = 240.0
_MOST_REFUSED = 50
_STORE_IMAGE = "pytorchjob/agent:dev"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class Stage:
    """One namespace with its store; jobs come and go, one at a time."""

    def __init__(self, kubectl: Kubectl, operator: Kubectl, proxy: str) -> None:
        self.kubectl, self.operator = kubectl, operator
        self._lines = f"{proxy}/api/v1/namespaces/{kubectl.namespace}/pods/store:{PORTS[0]}/proxy/lines"
        self._store = kubectl.get("pod", "store")["status"]["podIP"]
        self._numbers = itertools.count(1)
        self._read, self._rest, self._refused = 0, "", 0
        self._contender: Contender | None = None
        self.journal = Journal("none")
        self.name = ""

    def fresh(self, contender: Contender, count: int = WORKERS) -> None:
        """Put a new job of this contender, with so many workers, in the place of the present one."""
        self.remove()
        self.name = f"r{next(self._numbers)}"
        self._contender, self.journal = contender, Journal(self.name)
        self.kubectl("apply", "-f", "-", stdin=job(contender, self.name, self._store, PORTS, count))

    def remove(self) -> None:
        """Remove the present job, if there is one, and all that it has."""
        if self.name:
            self.kubectl("delete", "pytorchjob", self.name, "--wait=false")
            pods = f"--selector=training.kubeflow.org/job-name={self.name}"
            self.kubectl("delete", "pods", pods, "--grace-period=0", "--force", "--wait=false")
            until(lambda: not self.kubectl.pods(self.name), 60)
        self.name = ""

    def read(self) -> None:
        """Take in the lines that have come since."""
        while True:
            text = self._fetch()
            if not text:
                return
            self._read += len(text)
            *whole, self._rest = (self._rest + text.decode()).split("\n")
            for line in whole:
                self.journal.add(line)

    def _fetch(self) -> bytes:
        """What has come since; nothing if the API server does not answer now, an error if it has not for long."""
        try:
            with urllib.request.urlopen(f"{self._lines}?from={self._read}", timeout=30) as reply:
                text: bytes = reply.read()
        except (OSError, HTTPException):
            self._refused += 1
            if self._refused > _MOST_REFUSED:
                raise
            return b""
        self._refused = 0
        return text

    def wait(self, find: Callable[[], T | None], seconds: float) -> T | None:
        """Read lines until something is found in them, or the time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read()
            found = find()
            if found is not None:
                return found
            time.sleep(_READ_SECONDS)
        return None

    def settled(self, quiet: float, size: int = WORKERS) -> Group:
        """Wait until so many workers train together and nothing has changed for so many seconds; return their group."""
        found = self.wait(lambda: self._quiet(quiet, size), _START_SECONDS)
        if found is None:
            raise TimeoutError(f"the job does not train with {size} workers\n{self.kubectl.story(self.name)}")
        return found

    def _quiet(self, seconds: float, size: int) -> Group | None:
        group = self.journal.current()
        if group is None or group.size != size or len(group.present) != size or not group.complete():
            return None
        since = max(steps[0][1] for steps in group.steps.values())
        newest = max(self.journal.groups.values(), key=lambda group: int(group.name))
        return group if newest is group and group.latest() - since > seconds else None


@contextmanager
def stage(installed: bool = False) -> Iterator[Stage]:
    """The stage, set up, with the operator of this checkout; what was made for it is removed, the operator stays."""
    cluster = Kubectl(program("kubectl"), KUBECONFIG, "default")
    operator = Kubectl(cluster.program, KUBECONFIG, SYSTEM) if installed else install(cluster)
    with fresh_namespace(operator) as kubectl, stage_in(kubectl, operator) as made:
        yield made


@contextmanager
def stage_in(kubectl: Kubectl, operator: Kubectl) -> Iterator[Stage]:
    """The stage in a namespace that is there already; `operator` is for the operator's own."""
    _set_up(kubectl)
    with _proxy(kubectl) as proxy:
        made = Stage(kubectl, operator, proxy)
        try:
            yield made
        finally:
            made.remove()


def _set_up(kubectl: Kubectl) -> None:
    files = [f"--from-file={HERE / name}" for name in ("train.py", "store.py")]
    kubectl("create", "configmap", "bench", *files)
    kubectl("apply", "-f", "-", stdin=json.dumps(_store()))
    kubectl("wait", "--for=condition=Ready", "pod/store", "--timeout=120s")


def _store() -> dict[str, object]:
    """On the control plane if it may: the nodes of the workers are what gets lost."""
    container = {
        "name": "store",
        "image": _STORE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "/bench/store.py", *map(str, PORTS), "/tmp/checkpoints"],
        "readinessProbe": {"tcpSocket": {"port": PORTS[0]}, "periodSeconds": 1},
        "volumeMounts": [{"name": "bench", "mountPath": "/bench", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    there = {"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": there}]}
    spec = {
        **RESTRICTED,
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "bench", "configMap": {"name": "bench"}}],
        "affinity": {"nodeAffinity": preferred},
        "tolerations": [{"key": _CONTROL_PLANE, "operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "store"}, "spec": spec}


@contextmanager
def _proxy(kubectl: Kubectl) -> Iterator[str]:
    """An address of the API server that asks for nothing."""
    command = [kubectl.program, f"--kubeconfig={kubectl.kubeconfig}", "proxy", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        drain = threading.Thread(target=process.stdout.read, daemon=True)
        drain.start()
        try:
            assert found, "kubectl proxy did not start"
            yield f"http://{found[0]}"
        finally:
            process.terminate()
            drain.join()
