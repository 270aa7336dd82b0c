"""Every example reaches Succeeded on the cluster, and ends on this machine, without a cluster, in the same way."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e.conftest import ROOT
from e2e.kubectl import Kubectl

IMAGE = "image: pytorchjob/examples:dev"
WANTS_MORE = ("persistentVolumeClaim", "metrics:")
# tests/examples runs those with an image of their own, a shared volume, or a load that lasts for minutes.
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*/pytorchjob.yaml"))
    if IMAGE in (text := path.read_text()) and not any(words in text for words in WANTS_MORE)
]
LONG = {"digits", "three-machines", "warm"}
"""Others run them each time: tests/examples, and test_digits."""
FAILING = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: failing}
spec:
  pytorchReplicaSpecs:
    Master:
      restartPolicy: Never
      template:
        spec:
          securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
          containers:
            - name: pytorch
              image: pytorchjob/examples:dev
              command: [python, -c, "import time; time.sleep(4); raise SystemExit(3)"]
              securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


def _local(path: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit status and conditions of `pytorchjob run`."""
    command = [sys.executable, "-m", "pytorchjob", "run", "-f", str(path), "--output", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, _conditions(json.loads(done.stdout))


def _conditions(job: dict) -> list[tuple[str, str, str]]:
    return [(condition["type"], condition["status"], condition["reason"]) for condition in job["status"]["conditions"]]


def _marks(path: Path) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.long,) if path.parent.name in LONG else ()


@pytest.mark.parametrize("path", [pytest.param(path, id=path.parent.name, marks=_marks(path)) for path in EXAMPLES])
def test_an_example_succeeds_on_the_cluster_and_ends_alike_on_this_machine(kubectl: Kubectl, path: Path) -> None:
    name = yaml.safe_load(path.read_text())["metadata"]["name"]
    kubectl("apply", "-f", str(path))
    assert "Succeeded" in kubectl.finish(name), kubectl.story(name)
    assert _local(path) == (0, _conditions(kubectl.job(name)))


def test_a_job_that_fails_does_so_alike_on_the_cluster_and_on_this_machine(kubectl: Kubectl, tmp_path: Path) -> None:
    path = tmp_path / "failing.yaml"
    path.write_text(FAILING)
    kubectl("apply", "-f", str(path))
    assert "Failed" in kubectl.finish("failing")
    assert _local(path) == (1, _conditions(kubectl.job("failing")))
