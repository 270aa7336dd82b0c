"""How a job ended, if it did."""

from pytorchjob_operator.rounds.phases import Ended
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import End


def end_of(state: JobState) -> End | None:
    return state.phase.end if isinstance(state.phase, Ended) else None
