"""The roles of a job and their pods: refuses jobs that could never run."""

import re
from collections.abc import Iterable

from pytorchjob_operator import names
from pytorchjob_operator.model.rules.rule import MASTER, ROLES, SPECS, Node, Rule, replicas
from pytorchjob_operator.model.suggest import did_you_mean

_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_POD = f"{SPECS}.*.template.spec"
_KINDS = {str(role) for role in names.ReplicaType}


def _shares_a_name(pod: Node) -> bool:
    return bool(_names(pod.get("initContainers", ())) & _names(pod.get("containers", ())))


def _names(containers: Iterable[Node]) -> set[str]:
    return {container["name"] for container in containers}


def _ports_named(ports: Iterable[Node]) -> int:
    return sum(port.get("name") == names.PORT_NAME for port in ports)


def _foreign(roles: Node) -> list[str]:
    return sorted(set(roles) - _KINDS)


def _meant(roles: Node) -> str:
    """Suggest the role for the first unknown key that resembles one."""
    return next(filter(None, (did_you_mean(key, sorted(_KINDS)) for key in _foreign(roles))), "")


ROLE_RULES = (
    Rule(
        path=SPECS,
        field="",
        message="must have only the keys Master and Worker, in this spelling: rename or remove the others",
        cel="self.all(key, key in ['Master', 'Worker'])",
        broken=lambda roles: not set(roles) <= _KINDS,
        culprits_cel="self.filter(key, !(key in ['Master', 'Worker']))",
        culprits=_foreign,
        hint=_meant,
    ),
    Rule(
        path=SPECS,
        field="",
        message="must have a Master, a Worker, or both: add one",
        cel="has(self.Master) || has(self.Worker)",
        broken=lambda roles: not _KINDS & set(roles),
    ),
    Rule(
        path="spec",
        field="pytorchReplicaSpecs.Master.replicas",
        message="must be 1: a job has one Master; add workers under Worker instead",
        cel=f"!has({ROLES}.Master) || {ROLES}.Master.replicas == 1",
        broken=lambda spec: MASTER in spec["pytorchReplicaSpecs"] and replicas(spec, MASTER) != 1,
    ),
    Rule(
        path=_POD,
        field="containers",
        message=f"must have one container named {names.CONTAINER}, which runs the training: rename a container",
        cel=f"self.containers.exists(one, one.name == '{names.CONTAINER}')",
        broken=lambda pod: names.CONTAINER not in _names(pod["containers"]),
    ),
    Rule(
        path=_POD,
        field="initContainers",
        message="must not have the name of a container: rename the init container",
        cel="!has(self.initContainers)"
        " || self.initContainers.all(init, !self.containers.exists(one, one.name == init.name))",
        broken=_shares_a_name,
    ),
    Rule(
        path=f"{_POD}.containers.[]",
        field="name",
        message="must be a DNS label: lower case letters, digits and '-', beginning and ending with a letter or digit",
        cel=f"self.name.matches('{_LABEL}')",
        broken=lambda container: re.fullmatch(_LABEL, container["name"]) is None,
    ),
    Rule(
        path=f"{_POD}.containers.[]",
        field="image",
        message="must not be empty: name the image that the container runs",
        cel="has(self.image) && self.image != ''",
        broken=lambda container: not container.get("image"),
    ),
    Rule(
        path=f"{_POD}.containers.[].ports",
        field="",
        message=f"must have at most one port named {names.PORT_NAME}: it becomes MASTER_PORT; rename the others",
        cel=f"self.filter(port, has(port.name) && port.name == '{names.PORT_NAME}').size() <= 1",
        broken=lambda ports: _ports_named(ports) > 1,
    ),
)
