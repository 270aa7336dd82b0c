"""A pod that stays Terminating on a dead node is deleted by force, so that its place in the job is free again.

Only the kubelet can tell that the processes of a pod have ended, and a dead node has none: v1 waited for ever (#2072).
A pod whose node is well is left alone however long it takes, and so is one whose node nothing is known of.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from pytorchjob_operator.observed import NodeHealth, Observed, Pod
from pytorchjob_operator.plan import events, limits
from pytorchjob_operator.plan.writes import DeletePod, Plan

LOOK_AGAIN = timedelta(seconds=30)
"""How long until a node is asked for again whose pod does not end: nodes are not watched."""


def add(seen: Observed, plan: Plan) -> Plan:
    """Add to the plan what its pods on dead nodes need; a status that the plan writes goes before them.

    Were it the other way round, a crash between the two would lose that a pod was terminating: a `Never` job fails
    for that, and must not be given a new pod instead.
    """
    terminating = tuple(_terminating(seen))
    forced = tuple(_forced(seen, terminating))
    if forced and plan.status is not None:
        return replace(plan, wake_at=seen.now)
    going = {write.uid for write in forced}
    times = [_look_at(seen, pod, due) for pod, due in terminating if pod.uid not in going]
    return replace(
        plan,
        reason=f"{plan.reason}; {len(forced)} pods deleted by force" if forced else plan.reason,
        writes=(*forced, *plan.writes),
        events=(*events.force_deleted(forced), *plan.events),
        nodes=frozenset(pod.node for pod, due in terminating if due <= seen.now) - seen.nodes.keys(),
        wake_at=min((one for one in (plan.wake_at, *times) if one is not None), default=None),
    )


def _terminating(seen: Observed) -> Iterator[tuple[Pod, datetime]]:
    """The pods that a kubelet has to end, with the time from which on they are overdue."""
    for pod in seen.pods:
        due = limits.after(pod.deleted_at, seen.options.stuck_pod_seconds or None)
        if pod.node and due is not None:
            yield pod, due


def _forced(seen: Observed, terminating: tuple[tuple[Pod, datetime], ...]) -> Iterator[DeletePod]:
    """Delete what is overdue on a dead node, with the reason."""
    for pod, due in terminating:
        dead_from = _dead_from(seen, pod.node)
        if due <= seen.now and dead_from is not None and dead_from <= seen.now and pod.deleted_at is not None:
            late = _seconds(seen.now - pod.deleted_at)
            reason = f"its grace period ended {late} ago, and {_told(seen, pod.node)}"
            yield DeletePod(pod.name, pod.uid, reason, force=True)


def _dead_from(seen: Observed, name: str) -> datetime | None:
    """From when on no kubelet is believed to end a pod of this node; None while one may, or while that is not known."""
    node = seen.nodes.get(name)
    if node is None:
        return None
    if node.health is NodeHealth.NOT_READY:
        return limits.after(node.since, seen.options.stuck_pod_seconds)
    return seen.now if node.health in (NodeHealth.GONE, NodeHealth.OUT_OF_SERVICE) else None


def _told(seen: Observed, name: str) -> str:
    """What is wrong with a dead node."""
    node = seen.nodes[name]
    if node.health is NodeHealth.NOT_READY and node.since is not None:
        return f"node {name} has not been ready for {_seconds(seen.now - node.since)}"
    return f"node {name} is {node.health}"


def _look_at(seen: Observed, pod: Pod, due: datetime) -> datetime:
    """When there may be more to do about this pod: it is overdue, its node is believed dead, or simply later."""
    if due > seen.now:
        return due
    dead_from = _dead_from(seen, pod.node)
    later = seen.now + LOOK_AGAIN
    return later if dead_from is None else min(dead_from, later)


def _seconds(time: timedelta) -> str:
    return f"{time.total_seconds():.0f} s"
