"""Converts a PyTorchJob to a TrainJob of Kubeflow Trainer v2, and back. Pure.

What is taken over is taken out of a copy of the source. What is left in the copy at the end is lost, and is returned
by its path: a field that nobody thought of is never lost in silence. A TrainJob names a runtime, which has everything
about pods; so most of a pod template has no place in it.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytorchjob_operator import names

TRAIN_API, TRAIN_KIND = "trainer.kubeflow.org/v1alpha1", "TrainJob"
RUNTIME = "torch-distributed"
TRAIN_GROUP = "trainer.kubeflow.org"
_TRAINER = ("image", "command", "args", "env")
_SERVER_META = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink")
_META = ("name", "namespace", "labels", "annotations")
_MULTIKUEUE = "kueue.x-k8s.io/multikueue"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Converted:
    """The new object, the paths of the source that have no place in it, and what the reader has to add."""

    body: Object
    lost: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def to_train_job(job: Object, runtime: str = RUNTIME) -> Converted:
    """Return a TrainJob for a PyTorchJob. Its nodes have the Worker's container, or the Master's without workers."""
    rest = copy.deepcopy(job)
    spec, kept = _start(rest)
    roles = spec.get("pytorchReplicaSpecs") or {}
    counts = {role: _number(body.pop("replicas", 1)) for role, body in roles.items()}
    chosen = "Worker" if counts.get("Worker") else "Master"
    container = _container(roles.get(chosen) or {})
    trainer: Object = {"numNodes": sum(counts.values())}
    processes = str(spec.get("nprocPerNode") or "")
    if processes.isdigit():
        trainer["numProcPerNode"] = int(spec.pop("nprocPerNode"))
    for field in _TRAINER:
        if field in container:
            trainer[field] = container.pop(field)
    if "resources" in container:
        trainer["resourcesPerNode"] = container.pop("resources")
    container.pop("name", None)
    _forget_equal(roles, chosen, trainer)
    body: Object = {"runtimeRef": {"apiGroup": TRAIN_GROUP, "kind": "ClusterTrainingRuntime", "name": runtime}}
    policy = spec.get("runPolicy") or {}
    body |= _shared(policy)
    return Converted(_object(TRAIN_API, TRAIN_KIND, kept, body | {"trainer": trainer}), tuple(_leaves(rest)))


def to_pytorch_job(train_job: Object) -> Converted:
    """Return a PyTorchJob for a TrainJob: a Master, and Workers for the other nodes, with the same template."""
    rest = copy.deepcopy(train_job)
    spec, kept = _start(rest)
    trainer = spec.get("trainer") or {}
    container: Object = {"name": names.CONTAINER}
    for field in _TRAINER:
        if field in trainer:
            container[field] = trainer.pop(field)
    if "resourcesPerNode" in trainer:
        container["resources"] = trainer.pop("resourcesPerNode")
    missing = [] if "image" in container else ["image: the runtime has it"]
    container.setdefault("image", "IMAGE")  # the rules refuse it: nobody submits the job before it is corrected
    nodes = _number(trainer.pop("numNodes", 1))
    body: Object = {}
    if "numProcPerNode" in trainer:
        body["nprocPerNode"] = str(trainer.pop("numProcPerNode"))
    if policy := _shared(spec):
        body["runPolicy"] = policy
    if not container.get("command") and not container.get("args"):
        missing.append("command: the runtime has it, unless the image does")
    counts = {"Master": 1} | ({"Worker": nodes - 1} if nodes > 1 else {})
    body["pytorchReplicaSpecs"] = {
        role: {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": {"spec": {"containers": [copy.deepcopy(container)]}},
        }
        for role, count in counts.items()
    }
    return Converted(_object(names.API_VERSION, names.KIND, kept, body), tuple(_leaves(rest)), tuple(missing))


def _start(rest: Object) -> tuple[Object, Object]:
    """Take out what both kinds share, and what the server writes; return the spec and the metadata to keep."""
    for field in ("apiVersion", "kind", "status"):
        rest.pop(field, None)
    meta = rest.get("metadata") or {}
    for field in _SERVER_META:
        meta.pop(field, None)
    kept = {field: meta.pop(field) for field in _META if field in meta}
    return rest.get("spec") or {}, kept


def _shared(source: Object) -> Object:
    """Take out the fields that both kinds have: of a run policy, or of the spec of a TrainJob."""
    taken: Object = {field: source.pop(field) for field in ("suspend", "activeDeadlineSeconds") if field in source}
    if source.get("managedBy") == _MULTIKUEUE:  # the other values name the one or the other controller
        taken["managedBy"] = source.pop("managedBy")
    return taken


def _object(version: str, kind: str, meta: Object, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def _container(role: Object) -> Object:
    """Return the container that trains, in its place: what nobody takes from it is lost by its path."""
    pod = (role.get("template") or {}).get("spec") or {}
    found = [each for each in pod.get("containers") or () if each.get("name") == names.CONTAINER]
    return found[0] if found else {}


def _forget_equal(roles: Object, chosen: str, trainer: Object) -> None:
    """Take out of the other role what the nodes have by the chosen one; what differs is left, and so is named."""
    same = {**{field: trainer.get(field) for field in _TRAINER}, "resources": trainer.get("resourcesPerNode")}
    for role, body in roles.items():
        if role != chosen:
            container = _container(body)
            container.pop("name", None)
            for field, value in same.items():
                if field in container and container[field] == value:
                    del container[field]


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _leaves(rest: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all values that are left."""
    if isinstance(rest, dict):
        for field, value in rest.items():
            yield from _leaves(value, f"{path}.{field}" if path else str(field))
    elif isinstance(rest, list):
        for index, value in enumerate(rest):
            name = value.get("name") if isinstance(value, dict) else None
            yield from _leaves(value, f"{path}[{name or index}]")
    elif rest is not None:
        yield path
