"""Checks an agent's hello: the credential of its pod, its place in the job, and room for one more connection. Pure.

`server._authenticate` asks in this order: the credential, then an ended job, then the place. The credential comes
first, so that an agent of another job learns nothing. How a credential is checked differs: a cluster has service
account tokens (`app/pod_identity`), a local run has tokens of its own (`KeyedTokens`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pytorchjob_agent.contract.messages import Hello, Refused
from pytorchjob_operator import tokens
from pytorchjob_operator.coordinator.usage import Share
from pytorchjob_operator.rounds.values import count

UNKNOWN_JOB = "the operator does not know this job yet"
UNKNOWN_POD = "the operator does not know this pod yet"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an agent has not proved to be the pod that it names."""

    refused: Refused
    """The answer to the agent."""
    report: str = ""
    """The sentence that the job shows. Empty: the reason passes by itself."""


class Authenticator(Protocol):
    """Checks the sender of a hello. The coordinator calls it in its own thread."""

    def reject(self, hello: Hello, address: str) -> Rejection | None:
        """Return why the peer at this IP address is not the pod that it names; None: it is that pod."""


@dataclass(frozen=True, slots=True)
class KeyedTokens:
    """Accepts the token that `tokens.token` derives for the pod, from any address."""

    key: bytes

    def reject(self, hello: Hello, address: str) -> Rejection | None:
        """Return why the token is not this pod's."""
        if tokens.matches(self.key, hello.job, hello.pod, hello.token):
            return None
        return Rejection(
            Refused(f"token: wrong for pod {hello.pod[:63]!r} of this job"),
            f"an agent with the name {hello.pod[:63]!r} has a wrong token",
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """What decides whether a pod of one job may enter."""

    places: Mapping[str, int]
    """The index of each pod by its name, also of former pods: a name always has the same index."""
    shares: tuple[Share, ...]
    """The connections of the job, of its namespace, and of all."""


def refusal(hello: Hello, admission: Admission | None) -> Refused | None:
    """Return why an authenticated pod may not enter now. None: it may."""
    if admission is None:
        return Refused(UNKNOWN_JOB, again=True)
    place = admission.places.get(hello.pod)
    if place is None:
        return Refused(UNKNOWN_POD, again=True)
    if place != hello.index:
        return Refused(f"index: {hello.index} is not the index of {hello.pod}, which is {place}")
    return None


def no_room(admission: Admission) -> Refused | None:
    """Return why a pod of the job gets no connection now. None: there is room."""
    for share in admission.shares:
        if share.used >= share.most:
            words = f"{share.owner} has {count(share.used, 'connection')}, and {share.most} is the limit"
            return Refused(f"no connection for {admission.shares[0].owner}: {words}", again=True)
    return None
