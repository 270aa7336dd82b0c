"""A job's name, which becomes the host names of its pods and the name of its Service."""

import re

from pytorchjob_operator import names
from pytorchjob_operator.model.rules.rule import MASTER, SPECS, WORKER, Node, Rule, elastic_policy, replicas

_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_MAX = names.MAX_NAME


def _too_long(job: Node, kind: names.ReplicaType, count: int) -> bool:
    return count > 0 and len(names.pod_name(job["metadata"]["name"], kind, count - 1)) > _MAX


NAMING = (
    Rule(
        path="",
        field="metadata.name",
        message="must be a DNS label: lower case letters, digits and '-', beginning with a letter, ending with a letter"
        " or digit",
        cel=f"self.metadata.name.matches('{_NAME}')",
        broken=lambda job: re.fullmatch(_NAME, job["metadata"]["name"]) is None,
    ),
    Rule(
        path="",
        field="metadata.name",
        message=f"is too long: <name>-master-0 is a host name and must be at most {_MAX} characters; shorten the name",
        cel=f"!has(self.{SPECS}.Master) || size(self.metadata.name) + size('-master-0') <= {_MAX}",
        broken=lambda job: _too_long(job, MASTER, min(replicas(job["spec"], MASTER), 1)),
    ),
    Rule(
        path="",
        field="metadata.name",
        message=f"is too long: the last worker's name, <name>-worker-<replicas - 1>, is a host name and must be at most"
        f" {_MAX} characters; shorten the name",
        cel=f"!has(self.{SPECS}.Worker) || size(self.metadata.name) + size('-worker-')"
        f" + size(string(self.{SPECS}.Worker.replicas - 1)) <= {_MAX}",
        broken=lambda job: _too_long(job, WORKER, replicas(job["spec"], WORKER)),
    ),
    Rule(
        path="",
        field="metadata.name",
        message="is too long for elasticPolicy.maxReplicas: <name>-worker-<maxReplicas - 1> is a host name and must be"
        f" at most {_MAX} characters; shorten the name",
        cel="!has(self.spec.elasticPolicy) || !has(self.spec.elasticPolicy.maxReplicas)"
        " || size(self.metadata.name) + size('-worker-') + size(string(self.spec.elasticPolicy.maxReplicas - 1))"
        f" <= {_MAX}",
        broken=lambda job: _too_long(job, WORKER, elastic_policy(job["spec"]).get("maxReplicas", 0)),
    ),
)
