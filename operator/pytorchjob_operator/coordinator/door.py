"""Who is let in: what a stranger says of itself, against what the operator has told. Pure.

The token decides first, so that nobody learns anything of a job whose pod it is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pytorchjob_agent.contract.messages import Hello, Refused
from pytorchjob_operator import tokens

UNKNOWN_JOB = "the operator does not know this job (yet)"
UNKNOWN_POD = "the operator does not know this pod (yet)"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one job at the door."""

    places: Mapping[str, int]
    """The index of each pod by its name, of those that have left too: a name always has the same one."""
    links: int
    most_links: int


def wrong_token(hello: Hello, key: bytes) -> str | None:
    """Return a sentence about a stranger that cannot prove who it is; None for one that can."""
    if tokens.matches(key, hello.job, hello.pod, hello.token):
        return None
    return (
        f"an agent that calls itself {hello.pod[:63]!r} has a wrong token, the operator's key may have changed since"
        " its pod was made: delete that pod, unless it is not the job's"
    )


def refusal(hello: Hello, known: Known | None) -> Refused | None:
    """Return why a pod that has proved its name does not come in now; None if it does."""
    if known is None:
        return Refused(UNKNOWN_JOB, again=True)
    place = known.places.get(hello.pod)
    if place is None:
        return Refused(UNKNOWN_POD, again=True)
    if place != hello.index:
        return Refused(f"index: {hello.index} is not the place of {hello.pod}, which is {place}")
    if known.links >= known.most_links:
        return Refused(f"the job has {known.links} connections, {known.most_links} at most", again=True)
    return None
