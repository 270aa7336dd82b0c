"""The jobs of the pictures on a cluster with the operator, in a namespace of their own. A shell: it calls kubectl."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pytorchjob_operator import names
from website.pictures.jobs import Object, blocked, hanging, training
from website.pictures.scenes import HANGING, TRAINING

NAMESPACE = "pictures"
_FAULT_AT = 12
"""The step after which a worker is stopped. Hangs are found once ten steps are done."""
_TRIES = 300
_STOP = (
    "for p in /proc/[0-9]*; do if grep -q train.py $p/cmdline && ! grep -q pytorchjob-agent $p/cmdline;"
    " then kill -STOP ${p#/proc/}; fi; done"
)
"""Stops the workers of a pod, and neither its agent nor this shell."""


class Cluster:
    """A cluster by kubectl, with the namespace of the pictures as the default of its kubeconfig."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(_kubectl("config", "view", "--raw", "--flatten", "--minify"))
        self.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Return what kubectl prints; it has to succeed."""
        return _kubectl(f"--kubeconfig={self.kubeconfig}", *arguments, text=text)

    def status(self, job: str) -> Object:
        """Return the status of a job."""
        return dict(json.loads(self.kubectl("get", "pytorchjob", job, "-o", "json")).get("status") or {})

    @contextmanager
    def namespace(self) -> Iterator[None]:
        """Create the namespace and remove it with all that is in it."""
        self.kubectl("create", "namespace", NAMESPACE)
        try:
            yield
        finally:
            self.kubectl("delete", "namespace", NAMESPACE, "--wait=false")

    def submit(self, job: Object) -> None:
        """Create a job."""
        self.kubectl("create", "-f", "-", text=json.dumps(job))


def trains_through_a_hang(cluster: Cluster, root: Path) -> None:
    """Start the elastic example, stop a worker, and return once the job has trained on for a while."""
    cluster.submit(hanging(root))
    _until(lambda: _step(cluster.status(HANGING)) >= _FAULT_AT)
    cluster.kubectl("exec", f"{HANGING}-worker-1", "-c", names.CONTAINER, "--", "sh", "-c", _STOP)
    _until(lambda: cluster.status(HANGING).get("elastic", {}).get("restarts") == 1)
    reached = _step(cluster.status(HANGING))
    _until(lambda: _step(cluster.status(HANGING)) > reached)


def waits_for_gpus(cluster: Cluster, root: Path) -> None:
    """Start the digits example with workers that ask for GPUs, and return once the scheduler has refused them."""
    cluster.submit(blocked(root))
    _until(lambda: "FailedScheduling" in cluster.kubectl("get", "events"))


def trains(cluster: Cluster, root: Path) -> None:
    """Start the FSDP2 example, and return once it has shown progress."""
    cluster.submit(training(root))
    _until(lambda: _step(cluster.status(TRAINING)) > 0)


def _step(status: Object) -> int:
    return int((status.get("progress") or {}).get("step") or 0)


def _until(reached: Callable[[], bool]) -> None:
    for _ in range(_TRIES):
        if reached():
            return
        time.sleep(1)
    raise TimeoutError(f"the cluster did not show the state of the picture in {_TRIES} tries")


def _kubectl(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=False)  # noqa: S603, S607
    if done.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
