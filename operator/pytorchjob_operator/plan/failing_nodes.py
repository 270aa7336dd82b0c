"""Nodes on which pods of the job fail again and again: they are named, and new pods avoid them if the job asks for it.

The status counts a failed pod for its node in the same write in which it counts the pod's restart, so each pod counts
once. A node is named when its pods fail repeatedly and the other nodes' pods do not: a script that fails everywhere
names no node. New pods *prefer* other nodes (`spec.agent.avoidNodes`), so that a job never waits because of this.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from pytorchjob_operator.model import JobStatus, NodeFailures, PyTorchJob
from pytorchjob_operator.model.status import MAX_FAILING_NODES
from pytorchjob_operator.names import EventType, LossCause, Reason
from pytorchjob_operator.observed import Pod
from pytorchjob_operator.plan import node_affinity
from pytorchjob_operator.plan.writes import Event

REPEATED = 2
"""Failed pods on a single node that are more than an accident."""
_FROM_OUTSIDE = (LossCause.EVICTED, LossCause.PREEMPTED, LossCause.NODE_SHUTDOWN, LossCause.DEADLINE, LossCause.DELETED)
"""These pods were ended on purpose: the node has no fault."""


def counted(stored: Sequence[NodeFailures], pods: Iterable[Pod], now: datetime) -> tuple[NodeFailures, ...]:
    """Return the failures by node after these pods have failed; the node that failed last is the last element."""
    found = {failures.node: failures for failures in stored}
    for pod in pods:
        if pod.node and pod.cause not in _FROM_OUTSIDE:
            before = found.pop(pod.node, None)
            found[pod.node] = NodeFailures(node=pod.node, pods=(before.pods if before else 0) + 1, last_time=now)
    return tuple(found.values())[-MAX_FAILING_NODES:]


def repeated(stored: Sequence[NodeFailures]) -> tuple[str, ...]:
    """Return the nodes whose pods fail repeatedly, and at least as often as those of all other nodes together."""
    total = sum(failures.pods for failures in stored)
    return tuple(failures.node for failures in stored if failures.pods >= REPEATED and 2 * failures.pods >= total)


def avoiding(job: PyTorchJob, pod: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of the pod with this name, which prefers other nodes than those that are no good for it.

    Those are the nodes that its agent found unfit, and, if the job asks for it, nodes that fail repeatedly.
    """
    agent = job.spec.agent
    failing = repeated(job.status.node_failures or ()) if agent is not None and agent.avoid_nodes else ()
    unfit = (known.node for known in job.status.unfit_pods or () if known.name == pod and known.node)
    nodes = [*dict.fromkeys((*failing, *unfit))]
    if not nodes:
        return spec
    return node_affinity.prefer(spec, [node_affinity.field("NotIn", node) for node in nodes])


def events(job: PyTorchJob, status: JobStatus | None) -> Iterator[Event]:
    """Yield each node that this status is the first to show as failing repeatedly."""
    if status is None:
        return
    before = repeated(job.status.node_failures or ())
    avoids = job.spec.agent is not None and job.spec.agent.avoid_nodes
    advice = "new pods prefer other nodes" if avoids else "spec.agent.avoidNodes lets new pods prefer other nodes"
    for failures in status.node_failures or ():
        if failures.node in repeated(status.node_failures or ()) and failures.node not in before:
            what = f"{failures.pods} pods of this job have failed on node {failures.node}"
            yield Event(Reason.NODE_FAILS, f"{what}: check the node; {advice}.", EventType.WARNING)
