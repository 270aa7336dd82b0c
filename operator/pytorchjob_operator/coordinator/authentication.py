"""Checks an agent's hello against what the operator knows: token and pod. Pure.

`server._authenticate` asks in this order: the token, then an ended job, then the place. The token comes first, so that
an agent of another job learns nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pytorchjob_agent.contract.messages import Hello, Refused
from pytorchjob_operator import tokens

UNKNOWN_JOB = "the operator does not know this job yet"
UNKNOWN_POD = "the operator does not know this pod yet"


@dataclass(frozen=True, slots=True)
class Admission:
    """What decides whether a pod of one job may enter."""

    places: Mapping[str, int]
    """The index of each pod by its name, also of former pods: a name always has the same index."""
    connections: int
    max_connections: int


def wrong_token(hello: Hello, key: bytes) -> str | None:
    """Return a sentence about an agent that cannot prove its identity. None: the token is right."""
    if tokens.matches(key, hello.job, hello.pod, hello.token):
        return None
    return (
        f"an agent with the name {hello.pod[:63]!r} has a wrong token. If the pod belongs to this job, delete it:"
        " the operator's key may have changed since the pod was created"
    )


def refusal(hello: Hello, admission: Admission | None) -> Refused | None:
    """Return why an authenticated pod may not enter now. None: it may."""
    if admission is None:
        return Refused(UNKNOWN_JOB, again=True)
    place = admission.places.get(hello.pod)
    if place is None:
        return Refused(UNKNOWN_POD, again=True)
    if place != hello.index:
        return Refused(f"index: {hello.index} is not the index of {hello.pod}, which is {place}")
    if admission.connections >= admission.max_connections:
        most = admission.max_connections
        return Refused(f"the job has {admission.connections} connections, and {most} is the limit", again=True)
    return None
