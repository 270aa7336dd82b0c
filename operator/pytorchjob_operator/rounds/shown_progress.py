"""What a heartbeat shows of a training, for people. Decisions depend on the first step alone, and on when it came."""

from dataclasses import replace

from pytorchjob_agent.contract.messages import Heartbeat
from pytorchjob_operator.rounds.phases import Running
from pytorchjob_operator.rounds.transition import Transition
from pytorchjob_operator.rounds.values import ShownProgress


def read(message: Heartbeat) -> ShownProgress:
    """Return the fields of a heartbeat that only people see."""
    return ShownProgress(message.shown_step, message.shown_total, message.percent, message.remaining, message.rate)


def record(transition: Transition, message: Heartbeat) -> None:
    """Record the first step that is reported in the running round, and that the round shows any progress."""
    phase = transition.state.phase
    if not isinstance(phase, Running):
        return
    round_ = phase.round
    if message.step is not None and round_.first_step is None:
        round_ = replace(round_, first_step=message.step)
    if not round_.shows and _shows(message):
        round_ = replace(round_, shows=True)
        if not round_.adopted:
            transition.state = replace(transition.state, round_cost=transition.now - round_.started_at)
    if round_ is not phase.round:
        transition.update(phase, replace(phase, round=round_))


def _shows(message: Heartbeat) -> bool:
    return bool(message.metrics) or {message.step, message.shown_step, message.percent} != {None}
