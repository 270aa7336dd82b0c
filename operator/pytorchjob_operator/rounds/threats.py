"""Pods that may be lost soon, as the operator sees them: reported once, and the workers save at once. Pure.

Training continues: the workers are asked for a checkpoint and for nothing else. A pod that terminates later leaves its
round by `running.draining`.
"""

from dataclasses import replace

from pytorchjob_agent.contract.messages import Save
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.rounds.phases import Ended, Running
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import Member, SaveRequest, Threat, count

PAUSE_SECONDS = 30.0
"""The least time between two requests: the nodes of a pool are often announced one after the other. A script that shows
no steps has as much time to make some."""
ANSWER_SECONDS = 300.0
"""After this time without an answer a request counts as given up."""
_NAMED = 3


def sync(transition: Transition) -> None:
    """Compare the threatened pods with those before, and report the new ones."""
    state = transition.state
    found = frozenset(
        Threat(pod.pod, pod.pod_uid, pod.threat) for pod in state.pods.values() if pod.threat and not pod.succeeded
    )
    if found == state.threatened or isinstance(state.phase, Ended):
        return
    new = found - state.threatened
    transition.state = replace(state, threatened=found, unsaved=(state.unsaved & found) | new)
    if new:
        transition.record(TrainingReason.POD_THREATENED, f"{_words(new)}. {_reaction(transition)}", warning=True)


def advance(transition: Transition) -> None:
    """Ask the workers of the running round to save, if a threat is new; report once they have."""
    _check_answers(transition)
    state, phase = transition.state, transition.state.phase
    if not state.unsaved or not isinstance(phase, Running):
        return
    if phase.planned is not None or not _concerned(transition, phase):
        transition.state = replace(state, unsaved=frozenset())  # they save already, or train without these pods
        return
    if state.save is None and not _is_early(transition, phase) and (savers := _ready_savers(transition)):
        _ask(transition, phase, savers)


def repeat(transition: Transition, member: Member) -> None:
    """Send the standing request to a member that has connected again."""
    save = transition.state.save
    if save is not None and member.index in save.members:
        transition.send(member, _message(save, transition.now))


def _is_early(transition: Transition, phase: Running) -> bool:
    """True if there is little to save yet: since the last request, or since a round began that shows no step."""
    round_, asked_at = phase.round, transition.state.save_requested_at
    times = [asked_at, None if round_.adopted or round_.shows else round_.started_at]
    return any(transition.now < time + PAUSE_SECONDS for time in times if time is not None)


def _concerned(transition: Transition, phase: Running) -> bool:
    """True if a threatened pod takes part in the round, as far as its members are known."""
    pods = {threat.pod for threat in transition.state.unsaved}
    return None in phase.round.present or any(member.pod in pods for member in transition.state.in_round())


def _ask(transition: Transition, phase: Running, savers: list[Member]) -> None:
    state, number = transition.state, transition.state.requests + 1
    members = frozenset(member.index for member in savers)
    save = SaveRequest(phase.round.id, number, members, transition.now, _words(state.unsaved))
    transition.state = replace(state, requests=number, unsaved=frozenset(), save=save, save_requested_at=transition.now)
    for member in savers:
        transition.send(member, _message(save, transition.now))


def _message(save: SaveRequest, now: float) -> Save:
    return Save(save.round, save.number, max(save.at + ANSWER_SECONDS - now, 0.0), save.reason)


def _check_answers(transition: Transition) -> None:
    """End the standing request once it is answered, given up, or of a round that is over."""
    state, phase = transition.state, transition.state.phase
    save = state.save
    if save is None:
        return
    if not isinstance(phase, Running) or phase.round.id != save.round:
        # The workers begin again from what was saved: what threatens their pods now threatens the new round too.
        transition.state = replace(state, save=None, unsaved=state.threatened)
        return
    members = (state.members.get(index) for index in save.members - phase.round.done)
    if all(member is not None and member.answered >= save.number for member in members):
        transition.state = replace(state, save=None)
        transition.record(TrainingReason.SAVED, f"The workers have saved, and training continues: {save.reason}")
    elif transition.now >= save.at + ANSWER_SECONDS:
        transition.state = replace(state, save=None)


def _training(transition: Transition) -> list[Member]:
    phase = transition.state.phase
    done = phase.round.done if isinstance(phase, Running) else frozenset()
    members = transition.state.in_round()
    return [member for member in members if member.connection is not None and member.index not in done]


def _ready_savers(transition: Transition) -> list[Member]:
    """Return the members to ask, once the script has polled on all of them. All ranks poll equally often.

    The script of a member that is `cooperative` and does not save only stops.
    """
    training = _training(transition)
    polled = all(member.saves_on_request or member.cooperative for member in training)
    return [member for member in training if member.saves_on_request] if polled else []


def _reaction(transition: Transition) -> str:
    """Return what happens because of new threats, for the event."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return "No round runs now, so there is nothing to save."
    if phase.planned is not None:
        return "The workers save already."
    if not any(member.saves_on_request for member in _training(transition)):
        return "The script does not poll for requests to save, so nothing is saved at once."
    return "The workers are asked to save at once, and continue."


def _words(threats: frozenset[Threat]) -> str:
    """Return the first pods with their reasons."""
    first = sorted(threats)[:_NAMED]
    more = f" (and {count(len(threats) - _NAMED, 'more pod')})" if len(threats) > _NAMED else ""
    return "; ".join(f"{threat.pod}: {threat.reason}" for threat in first) + more
