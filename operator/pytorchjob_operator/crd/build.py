"""Builds the CustomResourceDefinition: the models' schema, the rules, columns and subresources."""

import copy
from collections.abc import Iterator
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.crd import pod_template
from pytorchjob_operator.crd.schema import PRESERVE, Schema, structural
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.model.rules import RULES, Rule

_WORKER = f".status.replicaStatuses.{names.ReplicaType.WORKER}"
_MASTER = f".status.replicaStatuses.{names.ReplicaType.MASTER}"
_WORKER_REPLICAS = f".spec.pytorchReplicaSpecs.{names.ReplicaType.WORKER}.replicas"
_INNER = {"[]": "items", "*": "additionalProperties"}
_TEXTS = ".status.columns"
_LATEST = ".status.conditions[-1:]"

_COLUMNS = (
    ("State", "string", f"{_LATEST}.type", 0, "Type of the latest condition"),
    ("Ready", "string", f"{_TEXTS}.ready", 0, "Pods that run, of the pods that the job has"),
    ("Restarts", "integer", f"{_TEXTS}.restarts", 0, "Restarts of pods, and of workers inside their pods"),
    ("Step", "integer", ".status.progress.step", 0, "Steps done"),
    ("Progress", "string", f"{_TEXTS}.progress", 0, "How much of the training is done"),
    ("ETA", "string", f"{_TEXTS}.eta", 0, "Remaining time of the training"),
    ("Age", "date", ".metadata.creationTimestamp", 0, ""),
    ("Loss", "string", f"{_TEXTS}.loss", 1, "The newest loss that the script reports"),
    (
        "Running",
        "string",
        f"{_TEXTS}.running",
        1,
        "The part of the job's time in which workers ran and no loss is known",
    ),
    ("Lost", "string", f"{_TEXTS}.lost", 1, "Time that is known to be lost"),
    ("Master", "integer", f"{_MASTER}.active", 1, "Running Masters"),
    ("Workers", "integer", f"{_WORKER}.active", 1, "Running workers"),
    ("Desired", "integer", _WORKER_REPLICAS, 1, "Requested workers"),
    ("World", "integer", ".status.elastic.worldSize", 1, "Worker processes that train together"),
    ("Started", "date", ".status.startTime", 1, "When the operator started the job"),
    ("Finished", "date", ".status.completionTime", 1, "When the job succeeded or failed"),
    ("Reason", "string", f"{_LATEST}.reason", 1, "Why the job is in this state"),
    ("Message", "string", f"{_LATEST}.message", 1, "What happened"),
)


def build_crd(preserve_unknown: bool = False) -> dict[str, Any]:
    """Return the definition; with `preserve_unknown`, pod templates keep fields that our copy of their schema lacks."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["ptj"],
                "categories": ["kubeflow", "training"],
            },
            "versions": [_version(preserve_unknown)],
        },
    }


def job_schema(preserve_unknown: bool = False) -> Schema:
    """Return the structural schema of a job, with its rules."""
    template = pod_template.load()
    if preserve_unknown:
        _preserve(template)
    schema = structural(PyTorchJob, template)
    # Only name and generateName may be restricted here; the bound is what CEL's cost estimate needs.
    name = {"type": "string", "maxLength": names.MAX_NAME}
    schema["properties"]["metadata"] = {"type": "object", "properties": {"name": name}}
    conditions = schema["properties"]["status"]["properties"]["conditions"]
    conditions.update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})
    for rule in RULES:
        _node(schema, rule).setdefault("x-kubernetes-validations", []).append(_validation(rule))
    return schema


def _version(preserve_unknown: bool) -> dict[str, Any]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": _WORKER_REPLICAS,
                "statusReplicasPath": f"{_WORKER}.active",
                "labelSelectorPath": f"{_WORKER}.selector",
            },
        },
        "schema": {"openAPIV3Schema": job_schema(preserve_unknown)},
    }


def _column(name: str, kind: str, path: str, priority: int, description: str) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description}
    return {key: value for key, value in column.items() if value}


def _validation(rule: Rule) -> dict[str, str]:
    validation = {"rule": rule.cel, "message": rule.message}
    if rule.culprits_cel:
        # The first alone: the API server's estimate of the cost of join() exceeds its budget.
        validation["messageExpression"] = f"'{rule.message}: ' + {rule.culprits_cel}[0]"
    return {**validation, "fieldPath": f".{rule.field}"} if rule.field else validation


def _node(schema: Schema, rule: Rule) -> Schema:
    """Return the schema node that a rule checks; nodes that several parents share are copied."""
    node = schema
    for part in filter(None, rule.path.split(".")):
        parent = node if part in _INNER else node["properties"]
        key = _INNER.get(part, part)
        parent[key] = copy.copy(parent[key])
        node = parent[key]
    return node


def _preserve(schema: Schema) -> None:
    for node in _objects(schema):
        node[PRESERVE] = True


def _objects(schema: Schema) -> Iterator[Schema]:
    """Yield every node with fields of its own."""
    if "properties" in schema:
        yield schema
        for inner in schema["properties"].values():
            yield from _objects(inner)
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from _objects(schema[key])
