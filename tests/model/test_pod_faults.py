"""What is found offline in pod templates that the definition accepts, and the fix that is named for a wrong form.

The API server judges the same pods in tests/apiserver/test_corpus.py.
"""

from typing import Any

import pytest
import yaml

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model.load import load_jobs, load_objects
from tests.model import corpus
from tests.model.invalid import BROKEN_PODS

_ROLES = "spec.pytorchReplicaSpecs"
_WORKER = f"{_ROLES}.Worker"
_POD = f"{_WORKER}.template.spec"
_MAIN = f"{_POD}.containers.0"
_NAMED = f"{_POD}.containers[0]"
FOUND = {
    "half a GPU": "resources.limits.nvidia.com/gpu",
    "a GPU requested and not limited": "resources.requests.nvidia.com/gpu",
    "a resource of no name": "resources.limits.a b",
    "a mount of no volume": "volumeMounts[0].name",
    "a variable with two sources": "env[0]",
    "an image with a blank before it": "image",
    "a GPU without its domain": "resources.limits.gpu",
}


def problems(changes: dict[str, Any], base: corpus.Job | None = None) -> list[tuple[str, str]]:
    text = yaml.safe_dump(corpus.changed(base or corpus.job(), changes))
    try:
        load_objects(text, "job.yaml")
    except InvalidJob as error:
        return [*error.problems]
    return []


@pytest.mark.parametrize(("about", "field"), FOUND.items(), ids=FOUND.keys())
def test_a_pod_that_can_never_run_is_refused_before_it_is_sent(about: str, field: str) -> None:
    assert [found for found, _ in problems(BROKEN_PODS[about])] == [f"{_NAMED}.{field}"]


@pytest.mark.parametrize(
    ("image", "good"),
    [
        *((image, True) for image in ("a", "a:1", "team/a", "localhost/a:dev", "reg.example:5000/a/b_c:V1.2-x")),
        *((image, True) for image in ("a@sha256:" + "0" * 64, "[::1]:5000/a", "a:1@sha256:" + "f" * 64)),
        *((image, False) for image in ("Train:1", "team/Train", "a:", "a b", "https://reg.example/a", "a:1:2", "/a")),
        *((image, False) for image in ("a@sha256:12", "<your image>", "a:" + "b" * 129, "-a", "a\n")),
    ],
)
def test_the_name_of_an_image(image: str, good: bool) -> None:
    assert (problems({f"{_MAIN}.image": image}) == []) is good


@pytest.mark.parametrize(
    "changes",
    [
        {f"{_MAIN}.resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "500m", "hugepages-2Mi": "4Mi"}}},
        {f"{_MAIN}.resources": {"limits": {"nvidia.com/gpu": 1}, "requests": {"nvidia.com/gpu": "1", "memory": "1Gi"}}},
        {f"{_MAIN}.resources": {"limits": {"example.com/a": "1k"}}},
        {
            f"{_POD}.volumes": [{"name": "data", "emptyDir": {}}],
            f"{_MAIN}.volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        {f"{_MAIN}.env": [{"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    ],
)
def test_a_pod_that_can_run_is_accepted(changes: dict[str, Any]) -> None:
    assert problems(changes) == []


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        ({"spec.Worker": corpus.role(), _ROLES: corpus.GONE}, "spec.Worker", _WORKER),
        (
            {"spec.ttlSecondsAfterFinished": 3},
            "spec.ttlSecondsAfterFinished",
            "spec.runPolicy.ttlSecondsAfterFinished",
        ),
        ({f"{_WORKER}.nodeSelector": {}}, f"{_WORKER}.nodeSelector", f"{_POD}.nodeSelector"),
        ({f"{_ROLES}.Master.image": "a"}, f"{_ROLES}.Master.image", f"{_ROLES}.Master.template.spec.containers[0]"),
        (
            {"spec.runPolicy.ttlSecondsAfterFinished": "1h"},
            "spec.runPolicy.ttlSecondsAfterFinished",
            "3600",
        ),
        ({f"{_MAIN}.command": "python train.py"}, f"{_NAMED}.command", '["python", "train.py"]'),
        ({f"{_MAIN}.args": "cd /a && python b.py"}, f"{_NAMED}.args", '["sh", "-c", "cd /a && python b.py"]'),
        ({f"{_MAIN}.resources": {"limits": {"cpu": 0.5}}}, f"{_NAMED}.resources.limits.cpu", "'0.5'"),
        ({f"{_MAIN}.resources": {"limits": {"a.b/c": 0.5}}}, f"{_NAMED}.resources.limits.a.b/c", "whole"),
        ({f"{_MAIN}.resources": {"limits": {"gpu": 1}}}, f"{_NAMED}.resources.limits.gpu", "nvidia.com/gpu"),
    ],
)
def test_one_problem_with_the_whole_fix(changes: dict[str, Any], field: str, fix: str) -> None:
    (found,) = problems(changes)
    assert (found[0], fix in found[1]) == (field, True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<!DOCTYPE html>\n<html><body>log in</body></html>", "HTML"),
        ('\n<html lang="en">', "HTML"),
        ("{{- if .Values.a }}\nkind: PyTorchJob\n{{- end }}", "Helm"),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: {{ .Release.Name }}", "Helm"),
        ('apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: "{{ .Release.Name }}"', "Helm"),
        ("apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}", "numNodes"),
    ],
)
def test_what_is_no_job_is_named_as_what_it_is(text: str, named: str) -> None:
    with pytest.raises(InvalidJob, match=named):
        load_jobs(text, "job.yaml")


def test_another_tools_template_in_an_argument_is_no_template_of_helm() -> None:
    assert problems({f"{_MAIN}.args": ["docker", "inspect", "--format", "{{ .State }}"]}) == []
