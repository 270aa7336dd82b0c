"""What a coordinator believes of the counters that agents report. Pure.

A new coordinator learns rounds and requests from the agents, and continues after the highest ones. A counter that no
job can have reached would leave no room for later ones, and the job could never train again.
"""

from pytorchjob_agent.contract.fields import MAX_COUNT
from pytorchjob_agent.contract.messages import Refused, RoundId
from pytorchjob_operator.rounds.state import JobState

TERMS_AHEAD = 1_000_000
"""A reported term may be higher than ours, because terms started again, but not by more leaders than ever were."""
MOST_RESTARTS = 1_000_000
"""The most restarts that are believed: the job's status has room for more, but not for any number."""


def is_implausible(state: JobState, id_: RoundId) -> bool:
    """Return whether a round cannot have existed."""
    return id_.term > state.term + TERMS_AHEAD


def implausible(id_: RoundId) -> Refused:
    """Return the answer to an agent that reports such a round."""
    return Refused(f"round {id_} cannot have existed: its term is too high", again=True)


def believed_request(state: JobState, answered: int) -> int:
    """Return the number of the last checkpoint request, after an agent has answered this one."""
    return max(state.requests, answered) if answered <= MAX_COUNT else state.requests


def believed_restarts(state: JobState, reported: int) -> int:
    """Return the restarts of a job, after an agent has reported this number."""
    return max(state.restarts, reported) if reported <= MOST_RESTARTS else state.restarts
