"""Deletes pods by force that stay Terminating on a dead node, so that their places in the job are free again.

Only the kubelet reports that the processes of a pod have ended, and on a dead node it does not run: v1 waited for ever
(#2072). Pods on healthy nodes, and on nodes whose state is unknown, are never deleted by force.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from pytorchjob_operator.observed import NodeHealth, Observed, Pod
from pytorchjob_operator.plan import events, job_limits
from pytorchjob_operator.plan.writes import DeletePod, Plan

RECHECK = timedelta(seconds=30)
"""How long until the node of such a pod is read again: a watch may be late."""


def add(seen: Observed, plan: Plan) -> Plan:
    """Add the forced deletions to the plan; a status in the plan is written before them.

    In the other order, a crash between the two would lose the fact that a pod was terminating. A `Never` job fails
    because of that fact and must not get a new pod instead.
    """
    terminating = tuple(_terminating(seen))
    forced = tuple(_forced(seen, terminating))
    if forced and plan.status is not None:
        return replace(plan, wake_at=seen.now)
    going = {write.uid for write in forced}
    times = [_check_at(seen, pod, due) for pod, due in terminating if pod.uid not in going]
    return replace(
        plan,
        reason=f"{plan.reason}; {len(forced)} pods deleted by force" if forced else plan.reason,
        writes=(*forced, *plan.writes),
        events=(*events.force_deleted(forced), *plan.events),
        nodes=plan.nodes | (frozenset(pod.node for pod, due in terminating if due <= seen.now) - seen.nodes.keys()),
        wake_at=min((time for time in (plan.wake_at, *times) if time is not None), default=None),
    )


def _terminating(seen: Observed) -> Iterator[tuple[Pod, datetime]]:
    """Yield the pods that a kubelet must end, with the time from which they are overdue."""
    for pod in seen.pods:
        due = job_limits.after(pod.deleted_at, seen.options.stuck_pod_seconds or None)
        if pod.node and due is not None:
            yield pod, due


def _forced(seen: Observed, terminating: tuple[tuple[Pod, datetime], ...]) -> Iterator[DeletePod]:
    """Yield the deletions of overdue pods on dead nodes, with the reason."""
    for pod, due in terminating:
        dead_from = _dead_from(seen, pod.node)
        if due <= seen.now and dead_from is not None and dead_from <= seen.now and pod.deleted_at is not None:
            late = _seconds(seen.now - pod.deleted_at)
            reason = f"its grace period ended {late} ago, and {_state(seen, pod.node)}"
            yield DeletePod(pod.name, pod.uid, reason, force=True)


def _dead_from(seen: Observed, name: str) -> datetime | None:
    """Return from when this node counts as dead; None if it is not dead or its state is unknown."""
    node = seen.nodes.get(name)
    if node is None:
        return None
    if node.health is NodeHealth.NOT_READY:
        return job_limits.after(node.since, seen.options.stuck_pod_seconds)
    return seen.now if node.health in (NodeHealth.GONE, NodeHealth.OUT_OF_SERVICE) else None


def _state(seen: Observed, name: str) -> str:
    """Return the state of a dead node for the message."""
    node = seen.nodes[name]
    if node.health is NodeHealth.NOT_READY and node.since is not None:
        return f"node {name} has not been ready for {_seconds(seen.now - node.since)}"
    return f"node {name} is {node.health}"


def _check_at(seen: Observed, pod: Pod, due: datetime) -> datetime:
    """Return when to check this pod again: when it is overdue, when its node counts as dead, or later."""
    if due > seen.now:
        return due
    dead_from = _dead_from(seen, pod.node)
    later = seen.now + RECHECK
    return later if dead_from is None else min(dead_from, later)


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():.0f} s"
