"""spec.nprocPerNode and spec.runPolicy: what a policy says must be possible for this job."""

import re

from pytorchjob_operator.model.rules.rule import MASTER, ROLES, WORKER, Node, Rule, elastic_policy, replicas

_NPROC = "^(auto|cpu|gpu|xpu|[1-9][0-9]{0,3})$"
_GANG = "self.runPolicy.schedulingPolicy"
_MASTERS = f"(has({ROLES}.Master) ? 1 : 0)"
_MOST_WORKERS = (
    f"(!has({ROLES}.Worker) ? 0 : !has(self.elasticPolicy) ? {ROLES}.Worker.replicas"
    " : has(self.elasticPolicy.maxReplicas) ? self.elasticPolicy.maxReplicas"
    f" : has(self.elasticPolicy.minReplicas) ? self.elasticPolicy.minReplicas : {ROLES}.Worker.replicas)"
)


def _gang_too_large(spec: Node) -> bool:
    gang = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    policy = elastic_policy(spec)
    workers = replicas(spec, WORKER)
    most = int(policy.get("maxReplicas") or policy.get("minReplicas") or workers) if workers else 0
    masters = 1 if MASTER in spec["pytorchReplicaSpecs"] else 0
    return bool(gang.get("minAvailable", 0) > masters + most)


POLICIES = (
    Rule(
        path="spec.nprocPerNode",
        field="",
        message="must be a number from 1 to 9999 as a string, or one of auto, cpu, gpu, xpu",
        cel=f"self.matches('{_NPROC}')",
        broken=lambda text: re.fullmatch(_NPROC, str(text)) is None,
    ),
    Rule(
        path="spec",
        field="runPolicy.schedulingPolicy.minAvailable",
        message="must be at most the number of pods that the job can have, the Master and all workers (elastic:"
        " maxReplicas): lower minAvailable, or the gang never starts",
        cel=f"!has(self.runPolicy) || !has({_GANG}) || !has({_GANG}.minAvailable)"
        f" || {_GANG}.minAvailable <= {_MASTERS} + {_MOST_WORKERS}",
        broken=_gang_too_large,
    ),
    Rule(
        path="spec.runPolicy.schedulingPolicy.minResources.*",
        field="",
        message="must not be negative: give the amount that must be free, for example 8 or 4Gi",
        cel="!string(self).startsWith('-')",
        broken=lambda quantity: str(quantity).startswith("-"),
    ),
)
