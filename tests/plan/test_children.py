"""Children that follow the spec: their names, and when the operator creates, updates and deletes them."""

from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.observed import Child
from pytorchjob_operator.plan import children
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, UpdateChild, Write
from tests.factories import JOB_UID, full_job, make_child, make_service, observed

KIND, UID = ChildKind.AUTOSCALER, "uid-horizontalpodautoscaler"
JOB = full_job()


def build(spec: dict[str, Any], job: PyTorchJob = JOB) -> dict[str, Any]:
    return children.build_child(job, "autoscaling/v2", KIND.kind, spec)


def hash_of(child: dict[str, Any]) -> str:
    return str(child["metadata"]["annotations"][names.ANNOTATION_SPEC_HASH])


WANTED = build({"maxReplicas": 3})


def test_a_child_has_the_jobs_name_namespace_labels_and_owner() -> None:
    child = build({"maxReplicas": 3})
    meta = child["metadata"]
    assert {key: value for key, value in child.items() if key != "metadata"} == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "spec": {"maxReplicas": 3},
    }
    assert set(meta) == {"name", "namespace", "labels", "annotations", "ownerReferences"}
    assert (meta["name"], meta["namespace"], meta["labels"]) == ("x", "ns", names.job_labels("x"))
    assert [reference["uid"] for reference in meta["ownerReferences"]] == [JOB_UID]


def test_the_hash_depends_on_the_spec_only() -> None:
    assert len(hash_of(build({}))) == 16
    assert hash_of(build({"a": 1, "b": 2})) == hash_of(build({"b": 2, "a": 1})), "the order of fields does not matter"
    assert hash_of(build({"a": 1}, full_job(name="other"))) == hash_of(build({"a": 1}))
    assert hash_of(build({"a": 1})) != hash_of(build({"a": 2}))


def found_child(**fields: Any) -> Child:
    return make_child(KIND, **fields)


@pytest.mark.parametrize(
    ("found", "wanted", "writes"),
    [
        pytest.param((), None, [], id="it is neither wanted nor there"),
        pytest.param((), WANTED, [CreateChild(KIND, WANTED)], id="it is missing"),
        pytest.param((make_service(),), WANTED, [CreateChild(KIND, WANTED)], id="a child of another kind is not it"),
        pytest.param((found_child(spec_hash=hash_of(WANTED)),), WANTED, [], id="it is as wanted"),
        pytest.param(
            (found_child(spec_hash="old"),), WANTED, [UpdateChild(KIND, UID, WANTED)], id="its spec has changed"
        ),
        pytest.param((found_child(),), WANTED, [UpdateChild(KIND, UID, WANTED)], id="v1 wrote it, without a hash"),
        pytest.param((found_child(name="y"),), None, [DeleteChild(KIND, "y", UID)], id="it is not wanted"),
        pytest.param((found_child(deleting=True),), None, [], id="it is being deleted, as wanted"),
        pytest.param(
            (found_child(deleting=True),), WANTED, [], id="it is being deleted, and is created again once it is gone"
        ),
    ],
)
def test_a_child_follows_the_spec(found: tuple[Child, ...], wanted: dict[str, Any] | None, writes: list[Write]) -> None:
    seen = replace(observed(JOB), children=found)
    assert list(children.converge(seen, KIND, wanted)) == writes


def test_a_kind_that_cannot_be_read_is_not_written() -> None:
    seen = replace(observed(JOB), children=(), unserved=frozenset({KIND}))
    assert list(children.converge(seen, KIND, WANTED)) == []


def test_a_job_that_does_not_run_keeps_its_service_only() -> None:
    group = make_child(ChildKind.POD_GROUP, "g", uid="uid-g")
    going = make_child(ChildKind.NETWORK_POLICY, deleting=True)
    seen = replace(observed(JOB), children=(make_service(), found_child(), group, going))
    assert list(children.release(seen)) == [
        DeleteChild(KIND, "x", UID),
        DeleteChild(ChildKind.POD_GROUP, "g", "uid-g"),
    ]
