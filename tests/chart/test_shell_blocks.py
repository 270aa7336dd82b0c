"""Shell blocks of the pages on a real API server, which has no nodes: what waits for pods is left out."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytorchjob_operator.kube import credentials
from tests.apiserver.cluster import BIN, ControlPlane
from tests.chart.conftest import ROOT, output, tool
from tests.chart.support import CRD, NAME, SPACE, job, served, until
from tests.shell.following import follow, run_by
from tests.shell.register import CHART, INSTALLING, RUNBOOKS

pytestmark = [pytest.mark.helm, pytest.mark.apiserver]

SECRET = f"{NAME}-coordinator"
TEAM, JOB = "team-a", "digits"
LABELS = {"app.kubernetes.io/name": NAME}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PUBLISHED = credentials.to_secret(credentials.rotate(credentials.make(NOW), NOW), SPACE, SECRET)
"""The coordinator's Secret with its next certificate."""
REASONS = ("CoordinatorDefect", "AgentRefused", "WorkersHang")


@dataclass(frozen=True)
class World:
    """A cluster, and the folder in which a reader stands."""

    plane: ControlPlane
    checkout: Path

    def kubectl(self, *arguments: str) -> str:
        done = self.plane.kubectl(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def helm(self, *arguments: str) -> str:
        where = ("--kubeconfig", str(self.plane.kubeconfig), "--namespace", SPACE)
        return output(tool("helm"), *arguments, *where)

    def run(self, key: str) -> str:
        return follow(
            key,
            self.checkout,
            [Path(tool("helm")).parent, BIN],
            KUBECONFIG=str(self.plane.kubeconfig),
            REGISTRY="r.test",
            NS=TEAM,
            JOB=JOB,
        )


def nothing_installed(world: World) -> None:
    world.helm("uninstall", NAME, "--ignore-not-found")
    world.kubectl("delete", "crd", CRD, "--ignore-not-found")


def installed(world: World) -> None:
    """A release whose last revision is not its first."""
    if NAME not in world.helm("list", "--short") or not served(world.plane):
        nothing_installed(world)
        world.run(f"{INSTALLING}: Helm")
        world.run(f"{INSTALLING}: Upgrading (2)")
    until(lambda: served(world.plane))


def coordinator_secret(world: World) -> None:
    """The Secret as an earlier version has made it: immutable, and its owner is not known."""
    installed(world)
    made = deepcopy(PUBLISHED)
    del made["metadata"]["annotations"]
    world.kubectl("delete", "secret", SECRET, "-n", SPACE, "--ignore-not-found")
    assert world.plane.apply({**made, "immutable": True}).returncode == 0


def rotated_secret(world: World) -> None:
    coordinator_secret(world)
    world.run(f"{INSTALLING}: The coordinator")


def job_with_events(world: World) -> None:
    """A job that was restarted, an event of every reason, and the leader's Lease."""
    installed(world)
    made = job(JOB, Worker=1)
    made["metadata"]["namespace"] = TEAM
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "first"}}
    about = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": JOB, "namespace": TEAM}
    events = [
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": reason.lower(), "namespace": TEAM},
         "type": "Warning", "reason": reason, "message": f"because of {reason}", "involvedObject": about}
        for reason in REASONS
    ]  # fmt: skip
    down = {**events[0], "metadata": {"name": "down", "namespace": SPACE}, "message": "the operator is down",
            "involvedObject": {"kind": "Pod", "name": NAME, "namespace": SPACE}}  # fmt: skip
    done = world.plane.apply(made, {**lease, "metadata": {"name": NAME, "namespace": SPACE}}, *events, down)
    assert done.returncode == 0, done.stderr
    restart = {"round": "1.1", "time": "2026-01-01T00:00:00Z", "reason": "WorkersHang", "message": "rank 1 hangs"}
    status = {"status": {"elastic": {"lastRestart": restart}, "progress": {"step": 5}}}
    world.kubectl(
        "patch", "ptj", JOB, "-n", TEAM, "--subresource=status", "--type=merge", "--patch", json.dumps(status)
    )
    spec = {"containers": [{"name": "pytorch", "image": "x"}], "serviceAccountName": "default"}
    labels = {"training.kubeflow.org/job-name": JOB}
    pod = {"name": f"{JOB}-worker-0", "namespace": TEAM, "labels": labels}
    done = world.plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec})
    assert done.returncode == 0, done.stderr


def v1_is_installed(world: World) -> None:
    pod = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "manager", "image": "x"}]}}
    spec = {"selector": {"matchLabels": LABELS}, "template": pod}
    where = {"name": "training-operator", "namespace": "kubeflow"}
    done = world.plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": where, "spec": spec})
    assert done.returncode == 0, done.stderr


def deployment(world: World) -> Any:
    return world.plane.get("deployment", NAME, "-n", SPACE)


def variables(world: World) -> dict[str, str]:
    containers = deployment(world)["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable.get("value", "") for variable in containers[0]["env"]}


def secret(world: World) -> Any:
    return world.plane.get("secret", SECRET, "-n", SPACE)


def its_image_is_named(world: World) -> bool:
    containers = deployment(world)["spec"]["template"]["spec"]["containers"]
    return str(containers[0]["image"]).startswith(("r.test/pytorchjob-operator:", "pytorchjob/operator"))


def revision(world: World) -> str:
    return str(json.loads(world.helm("history", NAME, "-o", "json"))[-1]["description"])


@dataclass(frozen=True)
class Case:
    """What a page takes for granted, and what it promises."""

    before: Callable[[World], None] = installed
    prints: str = ""
    after: Callable[[World], object] = lambda world: True


SEEN = {
    "CoordinatorDefect": "because of CoordinatorDefect",
    "CoordinatorRefuses": "because of AgentRefused",
    "Hangs": "rank 1 hangs",
    "OperatorDown": "the operator is down",
    "OperatorWatchStale": "readyz check passed",
    "OperatorWithoutLeader": "holderIdentity: first",
    "Pending": f"{JOB}-worker-0",
    "ProgressStalled": '"step":5',
    "RestartLoop": "rank 1 hangs",
}
CASES = {
    "charts/pytorchjob-operator/README.md: pytorchjob-operator": Case(nothing_installed, "", its_image_is_named),
    "docs/accelerators.md: Presets": Case(prints="configmap/"),
    "docs/accelerators.md: How many processes: `nprocPerNode`": Case(
        after=lambda world: variables(world)["PYTORCHJOB_ACCELERATORS"] == "example.com/npu"
    ),
    "docs/scheduling.md: Gangs: all pods or none": Case(after=lambda world: "volcano" in variables(world).values()),
    "docs/kueue.md: Set it up": Case(after=lambda world: variables(world)["PYTORCHJOB_KUEUE"] == "true"),
    f"{INSTALLING}: Before you begin: is training-operator v1 installed?": Case(v1_is_installed, "training-operator"),
    f"{INSTALLING}: Helm": Case(nothing_installed, "is installed in namespace pytorchjob-system", its_image_is_named),
    f"{INSTALLING}: Helm (2)": Case(
        after=lambda world: "restricted" in str(world.plane.get("namespace", SPACE)["metadata"]["labels"])
    ),
    f"{INSTALLING}: kustomize": Case(nothing_installed, f"deployment.apps/{NAME} created", its_image_is_named),
    f"{INSTALLING}: Rights of the operator, and why": Case(prints="issuer-discovery created"),
    f"{INSTALLING}: The coordinator": Case(
        coordinator_secret,
        after=lambda world: (
            "immutable" not in secret(world)
            and secret(world)["metadata"]["annotations"]["training.kubeflow.org/rotated"] == "true"
        ),
    ),
    f"{INSTALLING}: The coordinator (2)": Case(
        rotated_secret,
        "restarted",
        lambda world: (
            secret(world)["data"]["tls.crt"] == PUBLISHED["data"]["next.crt"]
            and "next.crt" not in secret(world)["data"]
        ),
    ),
    f"{INSTALLING}: Upgrading (2)": Case(after=lambda world: revision(world) == "Upgrade complete"),
    f"{INSTALLING}: Upgrading (3)": Case(after=lambda world: revision(world).startswith("Rollback to")),
    f"{INSTALLING}: Uninstalling": Case(
        after=lambda world: NAME not in world.helm("list", "--short") and served(world.plane)
    ),
    f"{INSTALLING}: Uninstalling (2)": Case(after=lambda world: not served(world.plane)),
    f"{RUNBOOKS}/PyTorchJobCoordinatorCertificateExpires.md: How to see it": Case(coordinator_secret, "notAfter="),
    **{
        f"{RUNBOOKS}/PyTorchJob{name}.md: How to see it": Case(job_with_events, prints) for name, prints in SEEN.items()
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        for name in (TEAM, "kubeflow"):
            assert plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).returncode == 0
        yield World(plane, ROOT)


@pytest.mark.parametrize("key", run_by(CHART))
def test_a_block_does_what_its_page_promises(cluster: World, manifests: Path, key: str) -> None:
    case = CASES[key]
    case.before(cluster)
    kustomize = key == f"{INSTALLING}: kustomize"
    # A reader has named the image in the manifests, as the page asks for.
    world = replace(cluster, checkout=manifests.parent) if kustomize else cluster
    assert case.prints in world.run(key)
    assert case.after(world)
    if kustomize:
        world.kubectl("delete", "-k", str(manifests / "base"))


def test_each_case_is_a_block() -> None:
    assert {*CASES} == {*run_by(CHART)}
