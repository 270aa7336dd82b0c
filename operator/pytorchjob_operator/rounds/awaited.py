"""The pods that a rendezvous awaits: which may still come, for how long, and whether the last round may still train.

A rendezvous is unsure (`phases`) if it is the job's first one, or if others may train a round that is not known here.
The times are those of `Policy`, which `plan/coordinator` makes of the job's elasticPolicy.
"""

from collections.abc import Sequence

from pytorchjob_operator.rounds.phases import LastWorkers, Rendezvous
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import ExpectedPod, Member, Round

ADOPTED_SECONDS = 10.0
"""How long the members of an adopted round may take to connect to this coordinator."""


def unknown_may_connect(transition: Transition, round_: Round) -> bool:
    """True if members of the round have not connected to this coordinator, and there are pods that they may be."""
    state, known = transition.state, set(round_.present)
    if None not in known:
        return False
    others = [(index, pod) for index, pod in state.pods.items() if index not in known]
    succeeded = sum(1 for _, pod in others if pod.succeeded)
    waiting = sum(1 for index, _ in others if (member := state.members.get(index)) is not None and member.waiting)
    unknown = round_.present.count(None) - succeeded
    return unknown > 0 and (not state.pods or unknown <= len(others) - succeeded - waiting)


def missing_pods(transition: Transition, waiting: Sequence[Member]) -> list[int]:
    """Return the expected replicas that do not wait here."""
    here = {member.index for member in waiting}
    return [index for index, pod in sorted(transition.state.pods.items()) if index not in here and not pod.succeeded]


def is_enough(transition: Transition, phase: Rendezvous, waiting: Sequence[Member]) -> bool:
    """True if a round may be formed of these members: all are here, or no other is worth the wait."""
    policy, pods = transition.state.policy, transition.state.pods
    if len(waiting) < policy.min_members:
        return False
    if len(waiting) >= policy.max_members and not phase.unsure:
        return True  # at first the coordinator waits for all: it does not know whether the missing pods train a round
    coming = [index for index in missing_pods(transition, waiting) if not pods[index].problem]
    if phase.unsure:
        coming += [index for index in transition.state.terminating if index not in transition.state.members]
    else:
        coming = [index for index in coming if _may_reconnect(transition, index)]
    return not coming or transition.now - phase.since >= _patience(transition, phase)


def _patience(transition: Transition, phase: Rendezvous) -> float:
    """Return how long a rendezvous with enough members waits for others, in seconds.

    A member that trains has not connected to a new leader before it misses the old one. So that leader waits at least
    as long as for the members of an adopted round, also if the user wants to wait less for more than the minimum.
    """
    policy = transition.state.policy
    may_train = phase.workers is LastWorkers.STOPPED_LONG_AGO or transition.state.trained
    first = max(policy.last_call_timeout, ADOPTED_SECONDS if may_train else 0.0)
    return first if phase.unsure else policy.rejoin_timeout


def _may_reconnect(transition: Transition, index: int) -> bool:
    """True if the agent of the present pod was connected before: a new pod takes longer than the rejoin timeout."""
    member = transition.state.members.get(index)
    return member is not None and not member.leaving and not is_replaced(transition.state.pods[index], member.pod_uid)


def is_replaced(pod: ExpectedPod, uid: str) -> bool:
    """True if another pod serves the replica of the pod with this uid."""
    return bool(uid and pod.pod_uid and pod.pod_uid != uid)


def last_round_may_run(transition: Transition, phase: Rendezvous) -> bool:
    """True if the last round may still train, or its members may agree on another one, while none of them is heard.

    Two groups of one job must never train at once. A pod that is gone ends the doubt, unless its agent is connected.
    """
    if (last := phase.last_round) is None:
        return False
    pods = [(index, uid) for index, uid in last.pod_uids.items() if last.has(index)]
    if not all(_is_connected(transition, index, uid) for index, uid in pods if _is_gone(transition, index, uid)):
        return False
    if phase.workers is LastWorkers.MAY_TRAIN:
        return True
    return bool(pods) and all(_is_out_of_reach(transition, index) for index, _ in pods)


def _is_out_of_reach(transition: Transition, index: int) -> bool:
    """True if the agent of this replica has lost the coordinator: without it, all members of a round may agree."""
    member = transition.state.members.get(index)
    if member is None:
        return index in transition.state.silent  # not if it has left
    return member.connection is None and not member.leaving


def _is_connected(transition: Transition, index: int, uid: str) -> bool:
    """True if the agent in this pod is connected: its workers train until it has stopped them."""
    member = transition.state.members.get(index)
    return member is not None and member.pod_uid == uid and member.connection is not None


def is_away(transition: Transition, index: int, uid: str) -> bool:
    """True if the pod with this uid does not exist any more: deleted or replaced, and not terminating either."""
    pod = transition.state.pods.get(index)
    return transition.state.terminating.get(index) != uid and (pod is None or is_replaced(pod, uid))


def _is_gone(transition: Transition, index: int, uid: str) -> bool:
    """True if the pod with this uid does not run any more, as the operator sees it."""
    pod = transition.state.pods.get(index)
    return is_away(transition, index, uid) or (pod is not None and (bool(pod.problem) or pod.succeeded))
