"""`convert`: PyTorchJobs and TrainJobs, each as the other, and what is lost on the way."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytorchjob.view.trainjob import to_pytorch_job, to_train_job
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.load import load_jobs
from tests.people.calling import call

ROOT = Path(__file__).parents[2]
RUNTIME = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
CONTAINER = {"image": "train:1", "command": ["python", "train.py"], "env": [{"name": "A", "value": "1"}]}
GPU = {"limits": {"nvidia.com/gpu": 1}}


def role(replicas: int | None = 1, *, pod: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    trains = {"name": "pytorch", **CONTAINER, **container}
    count = {} if replicas is None else {"replicas": replicas}
    return {**count, "template": {"spec": {**(pod or {}), "containers": [trains]}}}


def pytorch_job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "digits"}, "spec": spec}


def train_job(**spec: Any) -> dict[str, Any]:
    body = {"runtimeRef": RUNTIME, **spec}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "d"}, "spec": body}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"Master": role()}, {"numNodes": 1}, id="a master"),
        pytest.param({"Master": role(), "Worker": role(3)}, {"numNodes": 4}, id="a master and workers"),
        pytest.param({"Worker": role(None)}, {"numNodes": 1}, id="the default number"),
        pytest.param({"Worker": role(2, resources=GPU)}, {"numNodes": 2, "resourcesPerNode": GPU}, id="resources"),
    ],
)
def test_a_pytorch_job_becomes_a_train_job(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    found = to_train_job(pytorch_job(pytorchReplicaSpecs=spec))
    assert found.lost == ()
    assert found.body["spec"] == {"runtimeRef": RUNTIME, "trainer": {**expected, **CONTAINER}}


@pytest.mark.parametrize(
    ("spec", "lost"),
    [
        pytest.param({"nprocPerNode": "auto"}, ["spec.nprocPerNode"], id="a number that only the pod knows"),
        pytest.param({"elasticPolicy": {"minReplicas": 1}}, ["spec.elasticPolicy.minReplicas"], id="elasticity"),
        pytest.param({"agent": {"inject": False}}, ["spec.agent.inject"], id="the agent, even a false value"),
        pytest.param({"runPolicy": {"backoffLimit": 0}}, ["spec.runPolicy.backoffLimit"], id="a zero"),
        pytest.param({"runPolicy": {"managedBy": "a/b"}}, ["spec.runPolicy.managedBy"], id="another controller"),
        pytest.param(
            {"pytorchReplicaSpecs": {"Worker": role(pod={"nodeSelector": {"a": "b"}}, workingDir="/x")}},
            [
                "spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelector.a",
                "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].workingDir",
            ],
            id="the pod's own",
        ),
        pytest.param(
            {"pytorchReplicaSpecs": {"Master": role(image="other:1"), "Worker": role()}},
            ["spec.pytorchReplicaSpecs.Master.template.spec.containers[0].image"],
            id="a master that differs",
        ),
        pytest.param({"new": [{"name": "x", "deep": 1}]}, ["spec.new[x].name", "spec.new[x].deep"], id="an unknown"),
    ],
)
def test_what_a_train_job_cannot_say_is_named(spec: dict[str, Any], lost: list[str]) -> None:
    job = pytorch_job(**{"pytorchReplicaSpecs": {"Worker": role()}, **spec})
    assert list(to_train_job(job).lost) == lost


@pytest.mark.parametrize(
    ("spec", "replicas", "lost", "missing"),
    [
        pytest.param({"trainer": CONTAINER}, {"Master": 1}, [], 0, id="one node"),
        pytest.param({"trainer": {**CONTAINER, "numNodes": 3}}, {"Master": 1, "Worker": 2}, [], 0, id="nodes"),
        pytest.param({}, {"Master": 1}, [], 2, id="all by the runtime"),
        pytest.param(
            {"trainer": CONTAINER, "initializer": {"dataset": {"storageUri": "hf://x"}}},
            {"Master": 1},
            ["spec.initializer.dataset.storageUri"],
            0,
            id="an initializer",
        ),
    ],
)
def test_a_train_job_becomes_a_valid_pytorch_job(
    spec: dict[str, Any], replicas: dict[str, int], lost: list[str], missing: int
) -> None:
    found = to_pytorch_job(train_job(**spec))
    text = yaml.safe_dump(found.body)
    if missing:
        with pytest.raises(InvalidJob):
            load_jobs(text, "file")
    (job,) = load_jobs(text.replace("IMAGE", "train:1"), "file")
    assert {name: each["replicas"] for name, each in found.body["spec"]["pytorchReplicaSpecs"].items()} == replicas
    of_runtime = [path for path in found.lost if path.startswith("spec.runtimeRef")]
    assert len(of_runtime) == 3, "what the runtime says is unknown here"
    assert [path for path in found.lost if path not in of_runtime] == lost
    assert len(found.missing) == missing
    assert job.metadata.name == "d"


def test_a_round_trip_keeps_what_both_can_say() -> None:
    policy = {"suspend": True, "activeDeadlineSeconds": 60, "managedBy": "kueue.x-k8s.io/multikueue"}
    roles = {"Master": role(), "Worker": role(2)}
    for each in roles.values():
        each["restartPolicy"] = "OnFailure"
    job = pytorch_job(nprocPerNode="2", runPolicy=policy, pytorchReplicaSpecs=roles)
    job["metadata"] |= {"namespace": "team", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    there = to_train_job(job)
    assert list(there.lost) == [f"spec.pytorchReplicaSpecs.{name}.restartPolicy" for name in roles]
    assert to_pytorch_job(there.body).body == job


def test_what_the_server_wrote_is_neither_kept_nor_lost() -> None:
    job = pytorch_job(pytorchReplicaSpecs={"Worker": role()})
    found = to_train_job(
        {**job, "metadata": {"name": "digits", "uid": "x", "resourceVersion": "1"}, "status": {"conditions": []}}
    )
    assert (found.body["metadata"], found.lost) == ({"name": "digits"}, ())


def test_other_objects_of_a_file_stay_and_losses_go_to_stderr(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    job = pytorch_job(agent={"inject": True}, pytorchReplicaSpecs={"Worker": role()})
    path.write_text(yaml.safe_dump_all([settings, job]))
    result = call(None, "convert", path, "--runtime", "mine")
    first, second = yaml.safe_load_all(result.stdout)
    assert (first, second["spec"]["runtimeRef"]["name"]) == (settings, "mine")
    assert result.stderr == "lost: digits: spec.agent.inject\n"


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*/pytorchjob.yaml")), ids=lambda path: path.parent.name)
def test_the_examples_can_be_converted_there_and_back(path: Path) -> None:
    there = call(None, "convert", path)
    back = call(None, "convert", "-", stdin=there.stdout)
    assert (there.exit_code, back.exit_code) == (0, 0), there.output
    assert load_jobs(back.stdout, "file")


@pytest.mark.parametrize(
    "text", ["a: [", "kind: Pod\n", "", "[]", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: 1\n", "\x00"]
)
def test_a_file_that_cannot_be_converted_ends_with_2(text: str) -> None:
    result = call(None, "convert", "-", stdin=text)
    assert (result.exit_code, result.stdout) == (2, "")
