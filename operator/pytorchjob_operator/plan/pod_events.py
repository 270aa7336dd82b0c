"""What is to be told of single pods, once each: how one exited, what is wrong with it, that it was taken away.

The plan is pure: what has been told comes in with the observation and goes out with the plan. Pods that share a reason
share an event, and once several were told of it, a reason is told again only for as many more: a thousand pods that
fail one after the other make some fifteen events.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pytorchjob_agent.contract.environment import ExitCode
from pytorchjob_operator.names import Cause, EventType, Reason
from pytorchjob_operator.observed import Observed, Pod, ReportedEvent
from pytorchjob_operator.plan import replicas, restart
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.outcome import Outcome, Phase
from pytorchjob_operator.plan.restart import Decision
from pytorchjob_operator.plan.writes import Event
from pytorchjob_operator.problem import SCHEDULING_GATED

_ALWAYS = 8
"""Pods for each of which a reason is told, however they come; also how many pods one message names."""
_LOST = "lost"
"""Marks, among what was told, a pod that is going and was counted."""
_AGENTS: dict[int, str] = {
    ExitCode.DRAINED: "it was asked to go",
    ExitCode.PREFLIGHT: "this node or image is not fit for the job, see its log",
    ExitCode.RENDEZVOUS: "the others were not reached in time",
    ExitCode.FENCED: "another pod has taken its place",
}
"""What the codes of an agent say of a pod that meets the others at the coordinator."""
_AT_WORK = (Phase.PENDING, Phase.RUNNING, Phase.RESTARTING)


@dataclass(frozen=True, slots=True)
class PodEvents:
    """The events, what has been told with them, and why pods were lost that nobody has counted yet."""

    reported: frozenset[ReportedEvent]
    events: tuple[Event, ...] = ()
    lost: tuple[Cause, ...] = ()


class _Item(NamedTuple):
    """One thing to tell of one pod; items of the same reason and kind share an event."""

    reason: str
    kind: object
    message: str
    type: EventType


def decide(context: Context, outcome: Outcome) -> PodEvents:
    """Decide what to tell of the job's pods; one that is suspended has sent them away itself."""
    reported = _still(context.seen)
    if outcome.phase in (Phase.SUSPENDED, Phase.RESUMED):
        return PodEvents(reported)
    events = tuple(_events(context, reported))
    lost = [pod for pod in _leaving(context) if (pod.uid, _LOST) not in reported] if outcome.phase in _AT_WORK else []
    now_told = {one for _, new in events for one in new} | {(pod.uid, _LOST) for pod in lost}
    causes = tuple(pod.cause or Cause.UNKNOWN for pod in lost)
    return PodEvents(reported | now_told if now_told else reported, tuple(event for event, _ in events), causes)


def _still(seen: Observed) -> frozenset[ReportedEvent]:
    """What was told of pods that are still in sight."""
    if not seen.reported:
        return seen.reported
    uids = {pod.uid for pod in seen.pods}
    return frozenset(one for one in seen.reported if one[0] in uids)


def _events(context: Context, reported: frozenset[ReportedEvent]) -> Iterator[tuple[Event, list[ReportedEvent]]]:
    """The events, each with what it tells."""
    groups: dict[tuple[str, object], list[tuple[Pod, _Item]]] = {}
    noticed = (pod for pod in context.compared.present.values() if pod.exit_code or pod.problem)
    for pod in noticed:
        for item in _items(pod):
            if (pod.uid, item.reason) not in reported:
                groups.setdefault((item.reason, item.kind), []).append((pod, item))
    for (reason, _), pod_events in groups.items():
        before = sum(1 for _, one in reported if one == reason)
        if before < _ALWAYS or len(pod_events) >= before:
            yield (
                _event([pod.name for pod, _ in pod_events], pod_events[0][1]),
                [(pod.uid, reason) for pod, _ in pod_events],
            )


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
    """What the code alone does not say: the kernel's reason, or what the agent means by it."""
    if pod.cause is Cause.OOM_KILLED:
        return f" ({pod.cause.value})"
    meaning = None if pod.without_coordinator or pod.exit_code is None else _AGENTS.get(pod.exit_code)
    return f" ({meaning})" if meaning else ""


def _event(pods: list[str], first: _Item) -> Event:
    """One event of all these pods, in the words of the first."""
    others = pods[1:_ALWAYS]
    more = f" (and {len(pods) - 1} more: {', '.join(others)}{', ...' if len(pods) > _ALWAYS else ''})" if others else ""
    return Event(first.reason, first.message + more, first.type)


def _leaving(context: Context) -> Iterator[Pod]:
    """The pods that somebody takes away while the job needs them; the status counts those that failed before that."""
    for replica, pod in context.compared.present.items():
        if not pod.deleting or pod.uid in context.replacements.counted:
            continue
        spec = context.job.spec.pytorch_replica_specs.get(replica.type)
        if spec is not None and restart.decide(replicas.restart_policy(spec), pod)[0] is Decision.WAIT:
            yield pod
