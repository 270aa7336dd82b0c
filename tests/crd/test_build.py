import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytorchjob_operator.crd.build import build_crd, job_schema

MAX_BYTES = 230_000


def own_fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of ours below a node: pod templates are the API server's."""
    for key, inner in schema.get("properties", {}).items():
        yield f"{path}.{key}", inner
        if key not in ("template", "metadata"):
            yield from own_fields(inner, f"{path}.{key}")
    for key, name in (("items", "[]"), ("additionalProperties", ".*")):
        if key in schema:
            yield from own_fields(schema[key], path + name)


OWN = [(path, field) for path, field in own_fields(job_schema()) if path.count(".") > 1]


@pytest.mark.parametrize("preserve", [False, True], ids=["plain", "preserving"])
def test_the_definition_fits_into_an_annotation(preserve: bool) -> None:
    kept = json.dumps(build_crd(preserve), separators=(",", ":"))  # as kubectl keeps what it applied last
    assert len(kept.encode()) < MAX_BYTES


@pytest.mark.parametrize(("path", "field"), OWN, ids=[path for path, _ in OWN])
def test_every_field_of_ours_explains_itself(path: str, field: dict[str, Any]) -> None:
    assert field["description"].endswith(".")


@pytest.mark.parametrize(("path", "field"), OWN, ids=[path for path, _ in OWN])
def test_every_field_of_ours_is_bounded(path: str, field: dict[str, Any]) -> None:
    assert bounds(field) <= set(field)


def bounds(field: dict[str, Any]) -> set[str]:
    """The keywords that keep a value of this kind from being as large as it likes."""
    if field.get("x-kubernetes-int-or-string"):
        return {"maxLength", "minimum", "maximum"}
    if field["type"] == "object":
        fixed = "additionalProperties" not in field and not field.get("x-kubernetes-preserve-unknown-fields")
        return {"properties"} if fixed else {"maxProperties"}
    if field["type"] == "string":
        return {"enum"} if "enum" in field else {"maxLength"}
    if field["type"] in ("integer", "number"):
        return {"minimum", "maximum"}
    return {"array": {"maxItems"}, "boolean": set()}[field["type"]]


@pytest.mark.parametrize("keyword", ["$ref", "$defs", "anyOf", "title", "const", "x-crd-default", "x-crd-pod-template"])
def test_nothing_is_left_that_a_structural_schema_refuses(keyword: str) -> None:
    assert f'"{keyword}"' not in json.dumps(build_crd())


def test_the_only_stored_defaults_of_ours() -> None:
    assert {path: field["default"] for path, field in OWN if "default" in field} == {
        ".spec.runPolicy.suspend": False,
        ".spec.pytorchReplicaSpecs.*.replicas": 1,
    }


def test_building_twice_gives_the_same() -> None:
    assert build_crd() == build_crd()


def test_it_is_v1s_resource() -> None:
    spec = build_crd()["spec"]
    assert {key: spec["names"][key] for key in ("kind", "listKind", "plural", "singular")} == {
        "kind": "PyTorchJob",
        "listKind": "PyTorchJobList",
        "plural": "pytorchjobs",
        "singular": "pytorchjob",
    }
    versions = [(version["name"], version["served"], version["storage"]) for version in spec["versions"]]
    assert (spec["group"], spec["scope"], versions) == ("kubeflow.org", "Namespaced", [("v1", True, True)])


def test_it_is_scaled_by_v1s_paths() -> None:
    assert build_crd()["spec"]["versions"][0]["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    }


def test_its_columns_begin_with_the_state() -> None:
    columns = build_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert (columns[0]["name"], columns[0]["jsonPath"]) == ("State", ".status.conditions[-1:].type")
    age = next(column for column in columns if column["name"] == "Age")
    assert (age["jsonPath"], age["type"]) == (".metadata.creationTimestamp", "date")


def test_its_columns_show_how_far_a_job_is() -> None:
    columns = build_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["State", "Ready", "Restarts", "Step", "Progress", "ETA", "Age"]
    wide = [column["name"] for column in columns if column.get("priority")]
    assert wide == [
        "Loss",
        "Running",
        "Lost",
        "Master",
        "Workers",
        "Desired",
        "World",
        "Started",
        "Finished",
        "Reason",
        "Message",
    ]


def test_the_deprecated_field_says_so() -> None:
    assert dict(OWN)[".spec.elasticPolicy.nProcPerNode"]["description"].startswith("Deprecated: use spec.nprocPerNode")
