"""Events of single pods, each reported once: an exit code, a problem, a loss.

The plan is pure: the observation contains what has been reported, and the plan returns it with its additions. Pods with
the same reason share an event. After the first few events of a reason, the next event waits until as many more pods
have it: a thousand pods that fail one after the other make about fifteen events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pytorchjob_agent.contract.termination import ExitCode
from pytorchjob_operator.names import EventType, LossCause, Reason
from pytorchjob_operator.observed import Observed, Pod, ReportedEvent
from pytorchjob_operator.plan import replicas, restart
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import STOPPED, JobPhase, Outcome
from pytorchjob_operator.plan.restart import PodAction
from pytorchjob_operator.plan.writes import Event
from pytorchjob_operator.problem import SCHEDULING_GATED

_ALWAYS = 8
"""Number of pods whose reason is always reported at once; also how many pods a message names."""
_LOST = "lost"
"""Marks, among the reported events, a pod that was counted as lost."""
_AGENTS: dict[int, str] = {
    ExitCode.DRAINED: "it was asked to stop",
    ExitCode.PREFLIGHT: "this node or image is unfit for the job, see its log",
    ExitCode.RENDEZVOUS: "it did not reach the other members in time",
    ExitCode.FENCED: "another pod has taken its place",
}
"""What an agent's exit codes mean, for pods that train with the coordinator."""
_ACTIVE = (JobPhase.PENDING, JobPhase.RUNNING, JobPhase.RESTARTING)


@dataclass(frozen=True, slots=True)
class PodEvents:
    """The events, everything that is reported with them, and the causes of losses that are not counted yet."""

    reported: frozenset[ReportedEvent]
    events: tuple[Event, ...] = ()
    lost: tuple[LossCause, ...] = ()


class _Item(NamedTuple):
    """One thing to report about one pod; items of the same reason and kind share an event."""

    reason: str
    kind: object
    message: str
    type: EventType


def decide(context: Context, outcome: Outcome) -> PodEvents:
    """Decide what to report about the job's pods; a suspended job has deleted them itself, so there is nothing."""
    reported = _reported_before(context.seen)
    if outcome.phase in STOPPED:
        return PodEvents(reported)
    events = tuple(_events(context, reported))
    lost = [pod for pod in _leaving(context) if (pod.uid, _LOST) not in reported] if outcome.phase in _ACTIVE else []
    new_reports = {event for _, new in events for event in new} | {(pod.uid, _LOST) for pod in lost}
    causes = tuple(pod.cause or LossCause.UNKNOWN for pod in lost)
    return PodEvents(reported | new_reports if new_reports else reported, tuple(event for event, _ in events), causes)


def _reported_before(seen: Observed) -> frozenset[ReportedEvent]:
    """Return what was reported about pods that still exist."""
    if not seen.reported:
        return seen.reported
    uids = {pod.uid for pod in seen.pods}
    return frozenset(event for event in seen.reported if event[0] in uids)


def _events(context: Context, reported: frozenset[ReportedEvent]) -> Iterator[tuple[Event, list[ReportedEvent]]]:
    """Yield the events, each with what it reports."""
    groups: dict[tuple[str, object], list[tuple[Pod, _Item]]] = {}
    noticed = (pod for pod in context.compared.present.values() if pod.exit_code or pod.problem)
    for pod in noticed:
        for item in _items(pod):
            if (pod.uid, item.reason) not in reported:
                groups.setdefault((item.reason, item.kind), []).append((pod, item))
    for (reason, _), items in groups.items():
        before = sum(1 for _, reported_reason in reported if reported_reason == reason)
        if before < _ALWAYS or len(items) >= before:
            yield _event([pod.name for pod, _ in items], items[0][1]), [(pod.uid, reason) for pod, _ in items]


def _items(pod: Pod) -> Iterator[_Item]:
    if pod.exit_code and not pod.deleting:
        why = _why(pod)
        message = f"Pod: {pod.namespace}.{pod.name} exited with code {pod.exit_code}{why}"
        yield _Item(Reason.EXITED, (pod.exit_code, why), message, EventType.NORMAL)
    if pod.problem is not None:
        gated = pod.problem.reason == SCHEDULING_GATED
        message = f"Error pod {pod.name} {pod.problem.where} message: {pod.problem.message}"
        yield _Item(pod.problem.reason, None, message, EventType.NORMAL if gated else EventType.WARNING)


def _why(pod: Pod) -> str:
    """Return what the code alone does not show: the kernel's reason, or the meaning of an agent's code."""
    if pod.cause is LossCause.OOM_KILLED:
        return f" ({pod.cause.value})"
    meaning = None if pod.without_coordinator or pod.exit_code is None else _AGENTS.get(pod.exit_code)
    return f" ({meaning})" if meaning else ""


def _event(pods: list[str], first: _Item) -> Event:
    """Return one event for all these pods, with the message of the first."""
    others = pods[1:_ALWAYS]
    more = f" (and {len(pods) - 1} more: {', '.join(others)}{', ...' if len(pods) > _ALWAYS else ''})" if others else ""
    return Event(first.reason, first.message + more, first.type)


def _leaving(context: Context) -> Iterator[Pod]:
    """Yield the pods that are being deleted while the job needs them; the status counts pods that failed before."""
    for replica, pod in context.compared.present.items():
        if not pod.deleting or pod.uid in context.replacements.counted:
            continue
        spec = context.job.spec.pytorch_replica_specs.get(replica.type)
        if spec is not None and restart.decide(replicas.restart_policy(spec), pod)[0] is PodAction.WAIT:
            yield pod
