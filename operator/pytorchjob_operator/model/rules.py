"""The rules over a job that a structural schema cannot say: one table, for the API server (CEL) and for this machine.

A rule speaks of the dict as the user wrote it. `broken` is the Python twin of `cel`; a transition rule, which compares
with the object stored before, has none. Messages continue the sentence "<field> ...".
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model.defaults import DEFAULT_REPLICAS

Node = dict[str, Any]

_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NPROC = "^(auto|cpu|gpu|xpu|[1-9][0-9]{0,3})$"
_MASTER, _WORKER = names.ReplicaType.MASTER, names.ReplicaType.WORKER
_SPECS = "spec.pytorchReplicaSpecs"
_REPLICAS = f"self.{_SPECS.removeprefix('spec.')}"
_MAX = names.MAX_NAME


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that must hold, where it is checked, and what to say if it does not."""

    path: str
    """The schema node that the rule looks at: keys joined by dots, `*` for any key, `[]` for any element."""
    field: str
    """The field to name, relative to `path`; empty for the node itself."""
    message: str
    cel: str
    broken: Callable[[Node], bool] | None


def _replicas(specs: Node, kind: str) -> int:
    return int(specs[kind].get("replicas", DEFAULT_REPLICAS))


def _workers(spec: Node) -> int | None:
    specs = spec["pytorchReplicaSpecs"]
    return _replicas(specs, _WORKER) if _WORKER in specs else None


def _too_long(job: Node, kind: names.ReplicaType, replicas: int) -> bool:
    return len(names.pod_name(job["metadata"]["name"], kind, replicas - 1)) > _MAX


def _worker_name_too_long(job: Node) -> bool:
    workers = _workers(job["spec"])
    return workers is not None and _too_long(job, _WORKER, workers)


def _elastic_name_too_long(job: Node) -> bool:
    most = (job["spec"].get("elasticPolicy") or {}).get("maxReplicas")
    return most is not None and _too_long(job, _WORKER, most)


def _below_min(spec: Node) -> bool:
    workers, least = _workers(spec), (spec.get("elasticPolicy") or {}).get("minReplicas")
    return workers is not None and least is not None and workers < least


def _above_max(spec: Node) -> bool:
    workers, most = _workers(spec), (spec.get("elasticPolicy") or {}).get("maxReplicas")
    return workers is not None and most is not None and workers > most


def _both_nproc(spec: Node) -> bool:
    return "nprocPerNode" in spec and "nProcPerNode" in (spec.get("elasticPolicy") or {})


def _managed(of: str) -> str:
    return f"has({of}.runPolicy) && has({of}.runPolicy.managedBy)"


JOB_RULES = (
    Rule(
        path="",
        field="metadata.name",
        message="must be a DNS label: lower case letters, digits and '-', beginning with a letter, ending with a letter"
        " or digit",
        cel=f"self.metadata.name.matches('{_NAME}')",
        broken=lambda job: re.search(_NAME, job["metadata"]["name"]) is None,
    ),
    Rule(
        path="",
        field="metadata.name",
        message=f"is too long: <name>-master-0 is a host name and must be at most {_MAX} characters; shorten the name",
        cel=f"!has(self.{_SPECS}.Master) || size(self.metadata.name) + size('-master-0') <= {_MAX}",
        broken=lambda job: _MASTER in job["spec"]["pytorchReplicaSpecs"] and _too_long(job, _MASTER, 1),
    ),
    Rule(
        path="",
        field="metadata.name",
        message=f"is too long: the last worker's name, <name>-worker-<replicas - 1>, is a host name and must be at most"
        f" {_MAX} characters; shorten the name",
        cel=f"!has(self.{_SPECS}.Worker) || size(self.metadata.name) + size('-worker-')"
        f" + size(string(self.{_SPECS}.Worker.replicas - 1)) <= {_MAX}",
        broken=_worker_name_too_long,
    ),
    Rule(
        path="",
        field="metadata.name",
        message="is too long for elasticPolicy.maxReplicas: <name>-worker-<maxReplicas - 1> is a host name and must be"
        f" at most {_MAX} characters; shorten the name",
        cel="!has(self.spec.elasticPolicy) || !has(self.spec.elasticPolicy.maxReplicas)"
        " || size(self.metadata.name) + size('-worker-') + size(string(self.spec.elasticPolicy.maxReplicas - 1))"
        f" <= {_MAX}",
        broken=_elastic_name_too_long,
    ),
)

SPEC_RULES = (
    Rule(
        path="spec",
        field="elasticPolicy",
        message="needs workers: add spec.pytorchReplicaSpecs.Worker, or remove elasticPolicy",
        cel=f"!has(self.elasticPolicy) || has({_REPLICAS}.Worker)",
        broken=lambda spec: "elasticPolicy" in spec and _WORKER not in spec["pytorchReplicaSpecs"],
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Worker.replicas",
        message="must be at least elasticPolicy.minReplicas: raise replicas or lower minReplicas",
        cel=f"!has(self.elasticPolicy) || !has(self.elasticPolicy.minReplicas) || !has({_REPLICAS}.Worker)"
        f" || {_REPLICAS}.Worker.replicas >= self.elasticPolicy.minReplicas",
        broken=_below_min,
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Worker.replicas",
        message="must be at most elasticPolicy.maxReplicas: lower replicas or raise maxReplicas",
        cel=f"!has(self.elasticPolicy) || !has(self.elasticPolicy.maxReplicas) || !has({_REPLICAS}.Worker)"
        f" || {_REPLICAS}.Worker.replicas <= self.elasticPolicy.maxReplicas",
        broken=_above_max,
    ),
    Rule(
        path="spec",
        field="elasticPolicy.nProcPerNode",
        message="is deprecated and must not be set beside spec.nprocPerNode: keep only spec.nprocPerNode",
        cel="!has(self.nprocPerNode) || !has(self.elasticPolicy) || !has(self.elasticPolicy.nProcPerNode)",
        broken=_both_nproc,
    ),
    Rule(
        path="spec",
        field="runPolicy.managedBy",
        message="is immutable: delete the job and create it anew to hand it to another controller",
        cel=f"({_managed('self')}) == ({_managed('oldSelf')})"
        f" && (!({_managed('self')}) || self.runPolicy.managedBy == oldSelf.runPolicy.managedBy)",
        broken=None,
    ),
    Rule(
        path="spec.nprocPerNode",
        field="",
        message="must be a number from 1 to 9999 as a string, or one of auto, cpu, gpu, xpu",
        cel=f"self.matches('{_NPROC}')",
        broken=lambda text: re.search(_NPROC, str(text)) is None,
    ),
    Rule(
        path="spec.elasticPolicy",
        field="minReplicas",
        message="must be at most maxReplicas: lower minReplicas or raise maxReplicas",
        cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        broken=lambda policy: policy.get("minReplicas", 1) > policy.get("maxReplicas", float("inf")),
    ),
    Rule(
        path="spec.elasticPolicy.rdzvConf.[]",
        field="key",
        message="must not be empty: name the setting, for example timeout",
        cel="has(self.key) && self.key != ''",
        broken=lambda conf: not conf.get("key"),
    ),
    Rule(
        path="spec.runPolicy.schedulingPolicy.queue",
        field="",
        message="spec.runPolicy.schedulingPolicy.queue is immutable",
        cel="self == oldSelf",
        broken=None,
    ),
)

REPLICA_RULES = (
    Rule(
        path=_SPECS,
        field="",
        message="must have only the keys Master and Worker, spelled so",
        cel="self.all(key, key in ['Master', 'Worker'])",
        broken=lambda specs: not set(specs) <= {str(one) for one in names.ReplicaType},
    ),
    Rule(
        path=_SPECS,
        field="",
        message="must have a Master, a Worker, or both",
        cel="has(self.Master) || has(self.Worker)",
        broken=lambda specs: not {str(one) for one in names.ReplicaType} & set(specs),
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Master.replicas",
        message="must be 1: a job has one Master; add workers under Worker instead",
        cel=f"!has({_REPLICAS}.Master) || {_REPLICAS}.Master.replicas == 1",
        broken=lambda spec: (
            _MASTER in spec["pytorchReplicaSpecs"] and _replicas(spec["pytorchReplicaSpecs"], _MASTER) != 1
        ),
    ),
    Rule(
        path=f"{_SPECS}.*.template.spec",
        field="containers",
        message=f"must have one container named {names.CONTAINER}: it is the one that trains",
        cel=f"self.containers.exists(one, one.name == '{names.CONTAINER}')",
        broken=lambda pod: all(one.get("name") != names.CONTAINER for one in pod.get("containers", ())),
    ),
    Rule(
        path=f"{_SPECS}.*.template.spec.containers.[]",
        field="image",
        message="must not be empty: name the image that the container runs",
        cel="has(self.image) && self.image != ''",
        broken=lambda container: not container.get("image"),
    ),
)

RULES = JOB_RULES + SPEC_RULES + REPLICA_RULES
