"""docs/migrating.md on a real API server: its commands in their order, from v1's own manifests and back to them."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver import v1_process
from tests.apiserver.cluster import ControlPlane
from tests.chart.conftest import NAMED, ROOT, tool
from tests.chart.support import CRD, job, until
from tests.shell.register import DOCTOR, NODES, SEEN

pytestmark = [pytest.mark.helm, pytest.mark.apiserver, pytest.mark.long]

WEBHOOKS = "validator.training-operator.kubeflow.org"
PYTORCHJOBS = "validator.pytorchjob.training-operator.kubeflow.org"


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster with training-operator v1 in it, installed as its own page says, and one job."""
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane:
        assert plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}}).returncode == 0
        done = plane.kubectl("apply", "--server-side", "-k", str(sources() / "manifests/overlays/standalone"))
        assert done.returncode == 0, done.stderr
        until(lambda: plane.kubectl("get", "pytorchjobs", "-A").returncode == 0)
        until(lambda: created(plane))
        yield plane


def sources() -> Path:
    return v1_process.crd().parents[3]


def created(plane: ControlPlane) -> bool:
    """The job, made past the webhook, behind which no pod runs here."""
    hooks = json.dumps(plane.get("validatingwebhookconfiguration", WEBHOOKS)["webhooks"])
    open_door = json.dumps([{**hook, "failurePolicy": "Ignore"} for hook in json.loads(hooks)])
    patch_webhooks(plane, open_door)
    done = plane.apply(job("kept", Master=1, Worker=1))
    patch_webhooks(plane, hooks)
    return done.returncode == 0


def patch_webhooks(plane: ControlPlane, hooks: str) -> None:
    done = plane.kubectl(
        "patch", "validatingwebhookconfiguration", WEBHOOKS, "--type=merge", "-p", f'{{"webhooks": {hooks}}}'
    )
    assert done.returncode == 0, done.stderr


def follow(plane: ControlPlane, heading: str, *, block: int | None = None) -> str:
    """Run the commands below a heading of the page, all or those of one block; returns what they print."""
    text = (ROOT / "docs" / "migrating.md").read_text()
    section = re.split(r"^##+ ", text.partition(f"### {heading}\n")[2], flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    chosen = blocks if block is None else [blocks[block]]
    lines = [line for block in chosen for line in block.splitlines()]
    script = "\n".join(line for line in lines if not any(words in line for words in (NODES, SEEN, DOCTOR)))
    folders = [ROOT / ".venv/bin", plane.binaries, Path(tool("helm")).parent]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "V1": str(sources()), "REGISTRY": "r.test"}
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def schema(plane: ControlPlane) -> Any:
    return plane.get("crd", CRD)["spec"]["versions"]


def hooks(plane: ControlPlane) -> list[str]:
    return [hook["name"] for hook in plane.get("validatingwebhookconfiguration", WEBHOOKS)["webhooks"]]


def uid(plane: ControlPlane) -> str:
    return str(plane.get("-n", "training", "pytorchjob", "kept")["metadata"]["uid"])


def replicas(plane: ControlPlane) -> int:
    return int(plane.get("-n", "kubeflow", "deployment", "training-operator")["spec"]["replicas"])


def test_over_and_back_again(v1: ControlPlane) -> None:
    before, job_uid = schema(v1), uid(v1)
    assert (PYTORCHJOBS in hooks(v1), replicas(v1)) == (True, 1)
    assert "kept is valid" in follow(v1, "What to check first")

    follow(v1, "Swap", block=0)
    assert (PYTORCHJOBS in hooks(v1), len(hooks(v1)), replicas(v1)) == (False, 4, 0)
    swapped = schema(v1)
    assert len(json.dumps(swapped)) < len(json.dumps(before))
    assert v1.get("crd", CRD)["metadata"]["annotations"]["meta.helm.sh/release-name"] == "pytorchjob-operator"
    assert v1.apply(job("new", Worker=1)).returncode == 0
    assert "kept" in follow(v1, "Swap", block=2)
    assert uid(v1) == job_uid

    follow(v1, "Going back")
    assert (schema(v1), PYTORCHJOBS in hooks(v1), replicas(v1)) == (before, True, 1)
    assert uid(v1) == job_uid

    follow(v1, "Swap", block=0)
    assert (schema(v1), uid(v1)) == (swapped, job_uid)


def test_the_definition_marked_by_hand_is_taken_over_without_a_flag(v1: ControlPlane) -> None:
    v1.kubectl("delete", "-f", str(ROOT / "crds/kubeflow.org_pytorchjobs.yaml"))
    done = v1.kubectl("create", "-f", str(ROOT / "crds/kubeflow.org_pytorchjobs.yaml"))
    assert done.returncode == 0, done.stderr
    follow(v1, "Swap", block=1)
    helm = [tool("helm"), "upgrade", "--install", "pytorchjob-operator", str(ROOT / "charts/pytorchjob-operator")]
    where = [*NAMED, "--kubeconfig", str(v1.kubeconfig), "--namespace", "pytorchjob-system", "--create-namespace"]
    done = subprocess.run([*helm, *where], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
