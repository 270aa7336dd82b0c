"""The real Kueue on the cluster of `make cluster`, and what the pods of a namespace have used of a queue's quota.

Its manager runs on this machine, which the nodes reach through the network that they share.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.faults import docker
from e2e.kubectl import Kubectl
from tests.apiserver.kueue_process import KueueProcess
from tests.processes import start

Object = dict[str, Any]
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Cluster:
    """The cluster, as another operator's process sees it."""

    client: Kubectl

    @property
    def kubeconfig(self) -> Path:
        return self.client.kubeconfig

    def kubectl(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self.client.program, f"--kubeconfig={self.kubeconfig}", *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)

    def get(self, *args: str) -> Object:
        done = self.kubectl("get", *args, "-o", "json")
        assert done.returncode == 0, done.stderr
        found: Object = json.loads(done.stdout)
        return found


@contextmanager
def kueue(client: Kubectl, directory: Path) -> Iterator[KueueProcess]:
    """Kueue's manager, which leaves the Workloads of PyTorchJobs to their operator; its definitions are gone after."""
    gateway = docker("network", "inspect", "kind", "--format", "{{range .IPAM.Config}}{{.Gateway}} {{end}}")
    address = next(each for each in gateway.split() if ":" not in each)
    process = KueueProcess(Cluster(client), directory, ["pod"], external=True, address=address, places=True)
    try:
        yield process.wait_ready()
    finally:
        try:
            client("delete", "clusterqueues.kueue.x-k8s.io,resourceflavors.kueue.x-k8s.io", "--all")
            process.stop()
        finally:
            process.remove()


@contextmanager
def watched_pods(client: Kubectl, file: Path) -> Iterator[Path]:
    """Write each change of each pod of the namespace into a file, as the API server tells it."""
    command = ["get", "pods", "--watch", "--output-watch-events", "-o", "json"]
    process = start(
        [client.program, f"--kubeconfig={client.kubeconfig}", f"--namespace={client.namespace}", *command], file
    )
    try:
        yield file
    finally:
        process.terminate()
        process.wait(30)


def used(file: Path) -> list[int]:
    """The processors that all pods which exist have asked for, in thousandths, after each change of a pod.

    A pod that has ended uses none. One that is being deleted uses its own until it is gone.
    """
    there: dict[str, int] = {}
    found = []
    for event in _events(file.read_text()):
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        there.pop(uid, None)
        if event["type"] != "DELETED" and pod.get("status", {}).get("phase") not in _ENDED:
            there[uid] = sum(_thousandths(each) for each in pod["spec"]["containers"])
        found.append(sum(there.values()))
    return found


def _thousandths(container: Object) -> int:
    text = str(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


def _events(text: str) -> Iterator[Object]:
    decoder, at = json.JSONDecoder(), 0
    while (at := len(text) - len(text[at:].lstrip())) < len(text):
        event, at = decoder.raw_decode(text, at)
        yield event
