"""The definition on a real API server: it installs, explains itself, accepts and refuses what this machine does."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob_operator.crd.__main__ import rendered
from tests.apiserver.cluster import ControlPlane
from tests.apiserver.conftest import CRD, install
from tests.model import corpus
from tests.waiting import until

pytestmark = pytest.mark.apiserver

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
TYPO = "spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelectr"


@pytest.mark.parametrize("how", [(), ("--server-side", "--force-conflicts")], ids=["client side", "server side"])
def test_the_definition_installs_by_plain_apply_and_twice_changes_nothing(
    control_plane: ControlPlane, how: tuple[str, ...]
) -> None:
    first = control_plane.kubectl("apply", *how, "-f", str(CRD))
    assert first.returncode == 0, first.stderr
    before = control_plane.get("crd", "pytorchjobs.kubeflow.org")["metadata"]["generation"]
    again = control_plane.kubectl("apply", *how, "-f", str(CRD))
    assert ("serverside-applied" if how else "unchanged") in again.stdout
    assert control_plane.get("crd", "pytorchjobs.kubeflow.org")["metadata"]["generation"] == before


def test_the_schema_is_structural(control_plane: ControlPlane) -> None:
    conditions = control_plane.get("crd", "pytorchjobs.kubeflow.org")["status"]["conditions"]
    assert {condition["type"]: condition["status"] for condition in conditions} == {
        "NamesAccepted": "True",
        "Established": "True",
    }


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("ptj.spec.elasticPolicy", ["Makes the job elastic", "otherwise c10d"], id="elastic"),
        pytest.param("ptj.spec.runPolicy", ["cleanPodPolicy", "enum: ", "true deletes the job's"], id="run policy"),
        pytest.param("ptj.spec.pytorchReplicaSpecs.template.spec.containers", ["resources <Object>"], id="template"),
        pytest.param("ptj.status.conditions", ["lastTransitionTime", "One fact of a job's life"], id="conditions"),
    ],
)  # fmt: skip
def test_explain_reads_well(control_plane: ControlPlane, path: str, words: list[str]) -> None:
    text = " ".join(until(lambda: control_plane.kubectl("explain", path).stdout).split())
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("bad", corpus.BAD, ids=lambda bad: bad.sentence)
def test_the_api_server_refuses(control_plane: ControlPlane, bad: corpus.Bad) -> None:
    code, message = control_plane.post(JOBS, bad.job)
    assert code in (400, 422), message
    assert bad.field in plain(message)


@pytest.mark.parametrize("bad", [bad for bad in corpus.BAD if not bad.only_strict], ids=lambda bad: bad.sentence)
def test_the_api_server_refuses_from_a_careless_client_too(control_plane: ControlPlane, bad: corpus.Bad) -> None:
    code, message = control_plane.post(JOBS, bad.job, validation="Ignore")
    assert code in (400, 422), message
    assert bad.field in plain(message)


@pytest.mark.parametrize("key", ["PS", "worker"])
def test_a_wrong_role_is_named_beside_the_right_ones(control_plane: ControlPlane, key: str) -> None:
    job = corpus.changed(corpus.job(), {f"spec.pytorchReplicaSpecs.{key}": corpus.role()})
    _, message = control_plane.post(JOBS, job)
    assert f"in this spelling: rename or remove the others: {key}" in message


@pytest.mark.parametrize("job", corpus.GOOD.values(), ids=corpus.GOOD.keys())
def test_the_api_server_accepts(control_plane: ControlPlane, job: corpus.Job) -> None:
    code, message = control_plane.post(JOBS, job)
    assert code == 201, message


def test_kubectl_refuses_a_typo_in_a_template(control_plane: ControlPlane) -> None:
    done = control_plane.apply(corpus.changed(corpus.job(), {TYPO: {"gpu": "a100"}}))
    assert done.returncode == 1
    assert f'unknown field "{TYPO}"' in done.stderr


def test_unknown_fields_are_pruned_for_a_careless_client(control_plane: ControlPlane) -> None:
    code, message = control_plane.post(JOBS, corpus.changed(corpus.job(), {TYPO: {}}), validation="Ignore")
    assert (code, "nodeSelectr" in message) == (201, False)


@pytest.fixture
def stored(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the job `digits`: one Master, two workers."""
    assert control_plane.apply(corpus.job()).returncode == 0
    yield control_plane
    control_plane.kubectl("delete", "ptj", "digits", "--ignore-not-found")


def test_only_the_marked_defaults_are_stored(control_plane: ControlPlane) -> None:
    job = corpus.changed(corpus.job("bare", runPolicy={}), {})
    del job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    control_plane.apply(job)
    spec = control_plane.get("ptj", "bare")["spec"]
    control_plane.kubectl("delete", "ptj", "bare")
    assert spec["runPolicy"] == {"suspend": False}
    assert spec["pytorchReplicaSpecs"]["Worker"].pop("replicas") == 1
    assert spec["pytorchReplicaSpecs"] == job["spec"]["pytorchReplicaSpecs"]


def test_kubectl_scales_the_workers(stored: ControlPlane) -> None:
    assert stored.kubectl("scale", "ptj", "digits", "--replicas=5").returncode == 0
    assert stored.get("ptj", "digits")["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5


def test_a_job_without_a_number_of_workers_is_scaled_too(stored: ControlPlane) -> None:
    bare = corpus.job("bare")
    del bare["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    stored.apply(bare)
    done = stored.kubectl("scale", "ptj", "bare", "--current-replicas=1", "--replicas=3")
    stored.kubectl("delete", "ptj", "bare")
    assert done.returncode == 0, done.stderr


def test_kubectl_cannot_scale_to_nothing(stored: ControlPlane) -> None:
    done = stored.kubectl("scale", "ptj", "digits", "--replicas=0")
    assert done.returncode == 1
    assert "Worker.replicas" in done.stderr


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        pytest.param('{"spec":{"runPolicy":{"managedBy":"kueue.x-k8s.io/multikueue"}}}', "immutable", id="set later"),
        pytest.param('{"spec":{"managedBy":"kueue.x-k8s.io/multikueue"}}', "immutable", id="set later for its adapter"),
        pytest.param('{"spec":{"runPolicy":{"suspend":true}}}', "", id="suspend is not managedBy"),
        pytest.param('{"spec":{"runPolicy":{"schedulingPolicy":{"queue":"a"}}}}', "", id="a queue is added"),
    ],
)
def test_a_stored_job_changes(stored: ControlPlane, patch: str, words: str) -> None:
    done = stored.kubectl("patch", "ptj", "digits", "--type=merge", "-p", patch)
    assert (done.returncode == 1) is bool(words), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"managedBy": "kubeflow.org/training-operator"}, {}, id="managedBy is not taken away"),
        pytest.param(
            {"managedBy": "kubeflow.org/training-operator"},
            {"managedBy": "kueue.x-k8s.io/multikueue"},
            id="managedBy does not change",
        ),
        pytest.param(
            {"schedulingPolicy": {"queue": "a"}}, {"schedulingPolicy": {"queue": "b"}}, id="the queue does not change"
        ),
    ],
)
def test_what_is_immutable(control_plane: ControlPlane, before: corpus.Job, after: corpus.Job) -> None:
    control_plane.apply(corpus.job("fixed", runPolicy=before))
    done = control_plane.apply(corpus.job("fixed", runPolicy=after))
    control_plane.kubectl("delete", "ptj", "fixed")
    assert done.returncode == 1
    assert "immutable" in done.stderr


def test_a_queue_may_be_removed(control_plane: ControlPlane) -> None:
    control_plane.apply(corpus.job("queued", runPolicy={"schedulingPolicy": {"queue": "a"}}))
    done = control_plane.apply(corpus.job("queued", runPolicy={"schedulingPolicy": {"minAvailable": 2}}))
    control_plane.kubectl("delete", "ptj", "queued")
    assert done.returncode == 0, done.stderr


def test_the_status_is_its_own_door(stored: ControlPlane) -> None:
    condition = {"type": "Running", "status": "True", "reason": "PyTorchJobRunning", "message": "It runs."}
    status = {"conditions": [condition], "replicaStatuses": {"Worker": {"active": 2, "selector": "a=b"}}}
    patch = json.dumps({"status": status, "spec": {"nprocPerNode": "9"}})
    done = stored.kubectl("patch", "ptj", "digits", "--subresource=status", "--type=merge", "-p", patch)
    assert done.returncode == 0, done.stderr
    job = stored.get("ptj", "digits")
    assert (job["metadata"]["generation"], job["status"], "nprocPerNode" in job["spec"]) == (1, status, False)
    row = stored.kubectl("get", "ptj", "digits", "--no-headers", "-o", "wide").stdout.split()
    assert row[:2] == ["digits", "Running"]
    assert row[-3:] == ["PyTorchJobRunning", "It", "runs."]


def test_the_preserving_variant_keeps_a_field_of_tomorrow(control_plane: ControlPlane, tmp_path: Path) -> None:
    preserving = tmp_path / "crd.yaml"
    preserving.write_text(rendered(preserve_unknown=True))
    job = corpus.changed(corpus.job("tomorrow"), {TYPO: {"gpu": "a100"}})
    install(control_plane, preserving)
    try:
        until(lambda: control_plane.apply(job).returncode == 0)
        spec = control_plane.get("ptj", "tomorrow")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        assert spec["nodeSelectr"] == {"gpu": "a100"}
    finally:
        control_plane.kubectl("delete", "ptj", "tomorrow", "--ignore-not-found")
        install(control_plane, CRD)
    until(lambda: control_plane.post(JOBS, job)[0] == 400)


def plain(message: str) -> str:
    """CEL's errors write a key of a map in brackets, the schema's do not."""
    return re.sub(r"\[([A-Za-z]+)]", r".\1", message)
