"""Pods that may be members of a round that another leader formed, and that never connect to this one.

An agent that was frozen when the leader changed has no connection that could fall silent. So its pod is taken for
silent without one: the operator replaces it if it is well otherwise.
"""

from dataclasses import replace

from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Round, SilentAgent

NEW_POD_SECONDS = 60.0
"""How much longer an agent may be silent whose pod may be new: its container may have to load something first."""


def remember(transition: Transition, round_: Round | None) -> None:
    """Take the absent pods for silent that have to be the unknown members of this round: no others are absent.

    Also those that have left it: their workers may have been going on since, while the agent is frozen. But such a pod
    may also be a new one, and its agent has yet to start.
    """
    if round_ is None or not round_.adopted:
        return
    state, unknown, known = transition.state, round_.ranks.count(None), set(round_.ranks)
    if unknown == 0:
        return
    absent = [
        (index, pod)
        for index, pod in state.pods.items()
        if index not in state.members and not (index in known or pod.problem or pod.succeeded)
    ]
    if 0 < len(absent) <= unknown and any(index not in state.silent for index, _ in absent):
        since = round_.started_at + (0.0 if None in round_.present else NEW_POD_SECONDS)
        found = {index: SilentAgent(pod.pod_uid, since) for index, pod in absent}
        transition.state = replace(state, silent={**found, **state.silent})
