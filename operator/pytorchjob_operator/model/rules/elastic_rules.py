"""spec.elasticPolicy: numbers that fit together, and a rendezvous that torchrun can join.

What torchrun itself refuses (torch.distributed.elastic.rendezvous) is refused before any pod is created.
"""

import re

from pytorchjob_operator.model.rules.rule import MASTER, ROLES, WORKER, Node, Rule, elastic_policy, replicas

_ELASTIC = "spec.elasticPolicy"
_CONF = f"{_ELASTIC}.rdzvConf"
_P = "self.elasticPolicy"
_BACKEND = "^[A-Za-z0-9][-A-Za-z0-9_.]*$"
_HOST = r"^([-A-Za-z0-9_.]+|[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)$"
"""A DNS name, an IPv4 or an IPv6 address: what torchrun accepts before `:<port>`."""
_OWN_STORE = ("etcd", "etcd-v2")
_PARTS = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


def _below_min(spec: Node) -> bool:
    return bool(0 < replicas(spec, WORKER) < elastic_policy(spec).get("minReplicas", 0))


def _above_max(spec: Node) -> bool:
    return bool(replicas(spec, WORKER) > elastic_policy(spec).get("maxReplicas", float("inf")))


def _both_nproc(spec: Node) -> bool:
    return "nprocPerNode" in spec and "nProcPerNode" in elastic_policy(spec)


def _static_that_moves(spec: Node) -> bool:
    policy, workers = elastic_policy(spec), replicas(spec, WORKER)
    bounds = {policy.get("minReplicas", workers), policy.get("maxReplicas", workers)}
    return policy.get("rdzvBackend") == "static" and workers > 0 and bounds != {workers}


def _standalone_in_company(spec: Node) -> bool:
    policy = elastic_policy(spec)
    most = max(policy.get("maxReplicas", 1), replicas(spec, WORKER))
    return bool(policy.get("standalone")) and (MASTER in spec["pytorchReplicaSpecs"] or most > 1)


def _without_its_part(metric: Node) -> bool:
    part = _PARTS.get(metric["type"])
    return part is not None and part not in metric


SIZES = (
    Rule(
        path="spec",
        field="elasticPolicy",
        message="needs workers: add spec.pytorchReplicaSpecs.Worker, or remove elasticPolicy",
        cel=f"!has({_P}) || has({ROLES}.Worker)",
        broken=lambda spec: "elasticPolicy" in spec and WORKER not in spec["pytorchReplicaSpecs"],
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Worker.replicas",
        message="must be at least elasticPolicy.minReplicas: raise replicas or lower minReplicas",
        cel=f"!has({_P}) || !has({_P}.minReplicas) || !has({ROLES}.Worker)"
        f" || {ROLES}.Worker.replicas >= {_P}.minReplicas",
        broken=_below_min,
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Worker.replicas",
        message="must be at most elasticPolicy.maxReplicas: lower replicas or raise maxReplicas",
        cel=f"!has({_P}) || !has({_P}.maxReplicas) || !has({ROLES}.Worker)"
        f" || {ROLES}.Worker.replicas <= {_P}.maxReplicas",
        broken=_above_max,
    ),
    Rule(
        path="spec",
        field="elasticPolicy.nProcPerNode",
        message="is deprecated and must not be set beside spec.nprocPerNode: keep only spec.nprocPerNode",
        cel=f"!has(self.nprocPerNode) || !has({_P}) || !has({_P}.nProcPerNode)",
        broken=_both_nproc,
    ),
    Rule(
        path=_ELASTIC,
        field="minReplicas",
        message="must be at most maxReplicas: lower minReplicas or raise maxReplicas",
        cel="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        broken=lambda policy: policy.get("minReplicas", 1) > policy.get("maxReplicas", float("inf")),
    ),
    Rule(
        path=f"{_ELASTIC}.metrics.[]",
        field="",
        message="must have the part that its type names: resource, containerResource, pods, object or external",
        cel=" && ".join(f"(self.type != '{kind}' || has(self.{part}))" for kind, part in _PARTS.items()),
        broken=_without_its_part,
    ),
)

RENDEZVOUS = (
    Rule(
        path=f"{_ELASTIC}.rdzvBackend",
        field="",
        message="must be the name of a rendezvous backend: c10d, etcd, etcd-v2, static, or a backend of the image",
        cel=f"self.matches('{_BACKEND}')",
        broken=lambda text: re.fullmatch(_BACKEND, text) is None,
    ),
    Rule(
        path=f"{_ELASTIC}.rdzvHost",
        field="",
        message="must be a DNS name or an IP address without scheme, brackets and port; the port goes into rdzvPort",
        cel=f"self.matches('{_HOST}')",
        broken=lambda text: re.fullmatch(_HOST, text) is None,
    ),
    Rule(
        path=f"{_ELASTIC}.rdzvId",
        field="",
        message="must not be empty: name the run, or remove rdzvId",
        cel="self != ''",
        broken=lambda text: text == "",
    ),
    Rule(
        path=_ELASTIC,
        field="rdzvHost",
        message="must be set for rdzvBackend etcd and etcd-v2: name the etcd host, for example its Service",
        cel=f"!has(self.rdzvBackend) || !(self.rdzvBackend in {list(_OWN_STORE)}) || has(self.rdzvHost)",
        broken=lambda policy: policy.get("rdzvBackend") in _OWN_STORE and "rdzvHost" not in policy,
    ),
    Rule(
        path="spec",
        field="elasticPolicy.rdzvBackend",
        message="static has a fixed size: make minReplicas, maxReplicas and Worker.replicas equal, or use c10d",
        cel=f"!has({_P}) || !has({_P}.rdzvBackend) || {_P}.rdzvBackend != 'static' || !has({ROLES}.Worker)"
        f" || ((!has({_P}.minReplicas) || {_P}.minReplicas == {ROLES}.Worker.replicas)"
        f" && (!has({_P}.maxReplicas) || {_P}.maxReplicas == {ROLES}.Worker.replicas))",
        broken=_static_that_moves,
    ),
    Rule(
        path="spec",
        field="elasticPolicy.standalone",
        message="is for a job of one pod: it must have no Master, one worker, and no maxReplicas above 1; or remove"
        " standalone",
        cel=f"!has({_P}) || !has({_P}.standalone) || !{_P}.standalone || (!has({ROLES}.Master)"
        f" && (!has({ROLES}.Worker) || {ROLES}.Worker.replicas == 1)"
        f" && (!has({_P}.maxReplicas) || {_P}.maxReplicas == 1))",
        broken=_standalone_in_company,
    ),
    Rule(
        path=_ELASTIC,
        field="standalone",
        message="has its own rendezvous: remove rdzvHost and any rdzvBackend other than c10d, or remove standalone",
        cel="!has(self.standalone) || !self.standalone"
        " || (!has(self.rdzvHost) && (!has(self.rdzvBackend) || self.rdzvBackend == 'c10d'))",
        broken=lambda policy: (
            bool(policy.get("standalone")) and ("rdzvHost" in policy or policy.get("rdzvBackend", "c10d") != "c10d")
        ),
    ),
)

SETTINGS = (
    Rule(
        path=f"{_CONF}.[]",
        field="key",
        message="must not be empty: name the setting, for example timeout",
        cel="has(self.key) && self.key != ''",
        broken=lambda conf: not conf.get("key"),
    ),
    Rule(
        path=f"{_CONF}.[]",
        field="key",
        message="must have no ',' and no '=': settings are passed on as key=value,key=value",
        cel="!has(self.key) || !self.key.matches('[,=]')",
        broken=lambda conf: re.search("[,=]", conf.get("key", "")) is not None,
    ),
    Rule(
        path=f"{_CONF}.[]",
        field="value",
        message="must not be empty, which torchrun refuses: give the setting a value or remove it",
        cel="has(self.value) && self.value != ''",
        broken=lambda conf: not conf.get("value"),
    ),
    Rule(
        path=f"{_CONF}.[]",
        field="value",
        message="must have no ',': settings are passed on as key=value,key=value; give each an element of its own",
        cel="!has(self.value) || !self.value.contains(',')",
        broken=lambda conf: "," in conf.get("value", ""),
    ),
)

ELASTIC = (*SIZES, *RENDEZVOUS, *SETTINGS)
