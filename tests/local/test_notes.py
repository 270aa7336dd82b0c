from typing import Any

import pytest

from pytorchjob.local.notes import check, collect
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model import PyTorchJob
from tests.local.jobs import job, role

DATA = {"name": "d", "mountPath": "/d"}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def notes(pod: dict[str, Any] | None = None, run_policy: dict[str, Any] | None = None, **container: Any) -> list[str]:
    spec = job(Worker=role(["x"], **container))
    spec["spec"]["runPolicy"] = run_policy or {}
    spec["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"].update(pod or {})
    return collect(PyTorchJob.model_validate(spec), devices=0, python="/p")[1:]


def test_a_plain_job_has_one_note_however_many_roles() -> None:
    plain = PyTorchJob.model_validate(job(Master=role(["x"]), Worker=role(["x"])))
    assert collect(plain, 0, "/p") == ["image none is not used: commands run on this machine, `python` is /p"]


@pytest.mark.parametrize(
    ("given", "note"),
    [
        pytest.param({"pod": {"initContainers": [{"name": "get"}]}}, "init containers do not run: get", id="init"),
        pytest.param({"volumeMounts": [DATA]}, "volumes are not mounted: d at /d", id="dir"),
        pytest.param(
            {"env": [SECRET]}, "variables from Secrets, ConfigMaps and resources are not set: TOKEN", id="key"
        ),
        pytest.param({"envFrom": [{}]}, "envFrom is ignored", id="envFrom"),
        pytest.param({"workingDir": "/w"}, "workingDir /w is used only if", id="directory"),
        pytest.param({"livenessProbe": {"exec": {}}}, "probes and lifecycle hooks do not run", id="probe"),
        pytest.param({"resources": {"limits": {"cpu": 1}}}, "cpu and memory limits are not enforced", id="limits"),
        pytest.param(
            {"resources": {"limits": {"nvidia.com/gpu": 8}}},
            "the job requests 8 GPUs, this machine has 0: replicas run without GPUs",
            id="GPUs",
        ),
        pytest.param(
            {"run_policy": {"schedulingPolicy": {"gangScheduler": "volcano"}}},
            "runPolicy.schedulingPolicy is ignored",
            id="gang",
        ),
        pytest.param({"run_policy": {"suspend": True}}, "runPolicy.suspend is ignored", id="suspension"),
    ],
)
def test_what_is_ignored_is_said(given: dict[str, Any], note: str) -> None:
    (found,) = notes(**given)
    assert found.startswith(note)


def test_a_fieldref_is_honoured_and_needs_no_note() -> None:
    assert notes(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]) == []


def test_a_reserve_pod_needs_another_node() -> None:
    plain = job(Worker=role(["x"]))
    plain["spec"]["agent"] = {"reservePods": 1}
    found = collect(PyTorchJob.model_validate(plain), 0, "/p")[1:]
    assert found == ["agent.reservePods is ignored: this machine has no other node"]


def test_a_command_that_only_the_image_knows_is_refused_with_its_field() -> None:
    with pytest.raises(InvalidJob, match=r"Worker.template.spec.containers\[name=pytorch\].command: is required"):
        check(PyTorchJob.model_validate(job(Worker=role([]))))
