"""Replaces pods whose agent is frozen: it sends nothing, although its pod is ready and its node is well.

Nothing else would: the kubelet sees a process that runs, and the other members wait. Such a pod is counted and deleted
like a failed one, so it costs a restart of backoffLimit. With restartPolicy Never no pod is replaced, so it stays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pytorchjob_operator.model import PyTorchJob, RestartPolicy
from pytorchjob_operator.observed import NodeHealth, Observed, Pod
from pytorchjob_operator.plan import replicas
from pytorchjob_operator.plan.replicas import ReplicaComparison

SILENT = timedelta(seconds=60)
"""How long an agent may be silent. By then Kubernetes has noticed the loss of a node, which is not this case."""
RECHECK = timedelta(seconds=30)
"""How long until a pod or node that is not well is checked again."""


@dataclass(frozen=True, slots=True)
class Silence:
    """What follows from the silence of agents."""

    pods: tuple[tuple[Pod, str], ...]
    """The pods to replace now, each with the reason."""
    nodes: frozenset[str]
    """Nodes whose state is missing in the observation."""
    check_at: datetime | None
    """When to check again: the coordinator announces a silence only once. None: no agent is silent."""


def check(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> Silence:
    """Decide about the pods whose agents are silent."""
    found = tuple(_candidates(seen, job, compared))
    due = [(pod, silence) for pod, silence in found if silence >= SILENT]
    times = [seen.now + (RECHECK if silence >= SILENT else SILENT - silence) for _, silence in found]
    return Silence(
        pods=tuple(
            (pod, f"its agent has sent nothing for {silence.total_seconds():.0f} s, although the pod is ready")
            for pod, silence in due
            if _is_well(seen, pod, silence)
        ),
        nodes=frozenset(pod.node for pod, _ in due if pod.node) - seen.nodes.keys(),
        check_at=min(times, default=None),
    )


def _candidates(seen: Observed, job: PyTorchJob, compared: ReplicaComparison) -> Iterator[tuple[Pod, timedelta]]:
    """Yield the running pods whose agents are silent. If most are, the network is the cause, and no pod is replaced."""
    silent = {pod.uid: pod.seconds for pod in seen.report.silent} if seen.report else {}
    if not silent or 2 * len(silent) > len(compared.present):
        return
    for replica, pod in compared.present.items():
        spec = job.spec.pytorch_replica_specs.get(replica.type)
        assert spec is not None
        if pod.uid in silent and pod.active and replicas.restart_policy(spec) is not RestartPolicy.NEVER:
            yield pod, timedelta(seconds=silent[pod.uid])


def _is_well(seen: Observed, pod: Pod, silence: timedelta) -> bool:
    """Whether the pod has been ready all the time, on a node that is ready. A local run has no nodes.

    A container that was started again may still have to load something before its agent starts.
    """
    node = seen.nodes.get(pod.node)
    ready = pod.ready and (pod.ready_since is None or pod.ready_since <= seen.now - silence)
    return ready and (not pod.node or (node is not None and node.health is NodeHealth.READY))
