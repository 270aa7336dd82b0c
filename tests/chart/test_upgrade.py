"""An upgrade and its rollback with running jobs: the real operator, a real API server, two versions of the chart."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob_agent import __version__
from tests.apiserver.cluster import ControlPlane
from tests.chart.conftest import CHART, NAMED, ROOT
from tests.chart.support import CRD, NAME, SPACE, environment, job, served, until
from tests.ports import free_port

pytestmark = [pytest.mark.helm, pytest.mark.apiserver, pytest.mark.long]

NEXT = "99.0.0"
RUNNING = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


class Operator:
    """One pod of the chart's Deployment, as it is in the cluster; `roll_out` replaces it as a rollout does."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.log = plane.directory / "operator.log"
        self.process: subprocess.Popen[bytes] | None = None

    def roll_out(self) -> dict[str, str]:
        """End the process that runs, start another from the Deployment's template; return its variables."""
        self.stop()
        container = self.plane.get("deployment", NAME, "-n", SPACE)["spec"]["template"]["spec"]["containers"][0]
        env = environment(container) | {
            "KUBECONFIG": self.account(),
            "PYTHONPATH": str(ROOT / "operator"),
            "PYTORCHJOB_HTTP_PORT": str(free_port()),
            "PYTORCHJOB_OPERATOR_COORDINATOR_PORT": str(free_port()),
        }
        command = [sys.executable, *container["command"][1:]]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log)
        return env

    def account(self) -> str:
        """A kubeconfig of the chart's ServiceAccount."""
        token = self.plane.kubectl("create", "token", NAME, "-n", SPACE)
        assert token.returncode == 0, token.stderr
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token.stdout.strip()}
        path = self.plane.directory / "operator.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()  # as the kubelet does
                self.process.wait()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path / "plane") as started:
        for name in (SPACE, "training"):
            assert started.kubectl("create", "namespace", name).returncode == 0
        yield started


@pytest.fixture
def operator(plane: ControlPlane) -> Iterator[Operator]:
    made = Operator(plane)
    yield made
    made.stop()


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The chart of a later version, whose resource definition has one more field."""
    copy = tmp_path / "newer" / NAME
    shutil.copytree(CHART, copy)
    (copy / "Chart.yaml").write_text((CHART / "Chart.yaml").read_text().replace(__version__, NEXT))
    definition = yaml.safe_load((copy / "files/crd.yaml").read_text())
    version = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    version["spec"]["properties"]["later"] = {"type": "string"}
    (copy / "files/crd.yaml").write_text(yaml.safe_dump(definition, sort_keys=False))
    return copy


def knows(plane: ControlPlane, field: str) -> bool:
    """Whether the resource definition in the cluster has a field."""
    version = plane.get("crd", CRD)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return field in version["spec"]["properties"]


def pods(plane: ControlPlane, name: str) -> list[Any]:
    """The pods of a job, as they are."""
    return list(plane.get("pods", "-n", "training", "-l", f"training.kubeflow.org/job-name={name}")["items"])


def submit(plane: ControlPlane, name: str, **spec: Any) -> None:
    """Submit a job, wait for its pods, let them run, and wait until the job's status shows it."""
    made = job(name, Master=1, Worker=2)
    made["spec"].update(spec)
    done = plane.apply(made)
    assert done.returncode == 0, done.stderr
    until(lambda: len(pods(plane, name)) == 3)
    for pod in pods(plane, name):
        where = (pod["metadata"]["name"], "-n", "training", "--subresource=status", "--type=merge")
        done = plane.kubectl("patch", "pod", *where, "-p", json.dumps({"status": RUNNING}))
        assert done.returncode == 0, done.stderr
    until(lambda: runs(plane, name))


def runs(plane: ControlPlane, name: str) -> bool:
    found = plane.get("ptj", name, "-n", "training").get("status", {})
    active = sum(counts.get("active", 0) for counts in found.get("replicaStatuses", {}).values())
    return active == 3 and ("Running", "True") in [
        (condition["type"], condition["status"]) for condition in found["conditions"]
    ]


def test_upgrade_and_rollback_touch_no_pod_of_a_running_job(
    plane: ControlPlane, helm: Callable[..., str], operator: Operator, newer: Path
) -> None:
    where = ("--kubeconfig", str(plane.kubeconfig), "--namespace", SPACE)
    helm("install", NAME, str(CHART), *NAMED, *where)
    until(partial(served, plane))
    first = operator.roll_out()
    submit(plane, "plain")
    submit(plane, "injected", agent={"inject": True})
    before = pods(plane, "plain") + pods(plane, "injected")

    helm("upgrade", NAME, str(newer), *NAMED, *where)
    second = operator.roll_out()
    assert (first["PYTORCHJOB_AGENT_IMAGE"], second["PYTORCHJOB_AGENT_IMAGE"]) == tuple(
        f"pytorchjob/operator:{version}" for version in (__version__, NEXT)
    )
    assert knows(plane, "later")
    submit(plane, "after-the-upgrade")  # this operator works: it has read all jobs by then
    assert pods(plane, "plain") + pods(plane, "injected") == before

    helm("rollback", NAME, "1", *where)
    third = operator.roll_out()
    assert third["PYTORCHJOB_AGENT_IMAGE"] == first["PYTORCHJOB_AGENT_IMAGE"]
    assert not knows(plane, "later")
    submit(plane, "after-the-rollback")
    assert pods(plane, "plain") + pods(plane, "injected") == before
    assert [runs(plane, name) for name in ("plain", "injected", "after-the-upgrade")] == [True] * 3
