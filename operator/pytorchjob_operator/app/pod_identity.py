"""The identity of an agent in a cluster: the pod that its service account token names, as the cache of pods knows it.

The coordinator calls it in its own thread, also while the API server is away. A token proves a namespace, a name and a
uid. The cache adds which job the pod belongs to, whether it still runs, and its addresses. A pod that the cache does
not know yet is asked to try again.
"""

import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pytorchjob_agent.contract.messages import Hello, Refused
from pytorchjob_operator import names
from pytorchjob_operator.coordinator.authentication import UNKNOWN_POD, Rejection
from pytorchjob_operator.kube import pod_token
from pytorchjob_operator.kube.pod_token import Keys, OutdatedError, PodClaims, TokenError, UnknownKeyError
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.observed import Pod, PodPhase

_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)
_LATE_SECONDS = 60.0
"""How long after the end of its grace period a pod may still connect: a kubelet may be slow."""


class KeySource(Protocol):
    """The public keys of the API server, as `KeyRing` keeps them."""

    @property
    def keys(self) -> Keys:
        """The keys now."""

    @property
    def issuer(self) -> str:
        """The issuer of tokens; empty: unknown."""

    def refresh(self) -> None:
        """Have them fetched again soon."""


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Checks a hello against a service account token and the cached pods."""

    keys: KeySource
    pods: Store[Pod]
    outage: Callable[[], float]
    """Seconds since the API server last sent something."""
    check_address: bool = True
    clock: Callable[[], float] = time.time

    def reject(self, hello: Hello, address: str) -> Rejection | None:
        """Return why the peer at this address is not the pod that it names; None: it is that pod."""
        expected = pod_token.Expected(names.TOKEN_AUDIENCE, self.keys.issuer)
        try:
            claims = pod_token.verify(hello.token, self.keys.keys, expected, self.clock(), self.outage())
        except UnknownKeyError as error:
            self.keys.refresh()
            return _retry(hello, f"token: {error}")
        except OutdatedError as error:
            self.keys.refresh()
            return _retry(hello, f"token: {error}", report=True)
        except TokenError as error:
            return _wrong(hello, str(error))
        if (claims.name, claims.uid) != (hello.pod, hello.pod_uid):
            return _wrong(hello, f"it belongs to pod {claims.namespace}/{claims.name} with uid {claims.uid}")
        return self._reject_claims(hello, claims, address)

    def _reject_claims(self, hello: Hello, claims: PodClaims, address: str) -> Rejection | None:
        pod = self.pods.get(claims.namespace, claims.name)
        if pod is None:
            return _retry(hello, UNKNOWN_POD)
        if pod.uid != claims.uid:
            # A token is issued only while its pod exists: one from before the cached pod belongs to a former pod.
            if pod.created_at is not None and claims.issued_at <= pod.created_at.timestamp():
                return Rejection(Refused(f"{hello.pod} was replaced by a newer pod", fenced=True))
            return _retry(hello, UNKNOWN_POD)
        if pod.owner_uid != hello.job:
            return _wrong(hello, "its pod belongs to another job")
        return self._reject_pod(hello, pod, address)

    def _reject_pod(self, hello: Hello, pod: Pod, address: str) -> Rejection | None:
        """Check the pod itself: that it may still run, and that the peer is at one of its addresses."""
        if pod.phase in _ENDED:
            return Rejection(Refused(f"{hello.pod} has ended: {pod.phase}", fenced=True))
        late = self.clock() - _LATE_SECONDS
        if pod.deleted_at is not None and pod.deleted_at.timestamp() < late:
            return Rejection(Refused(f"{hello.pod} was deleted, and its grace period is over", fenced=True))
        if self.check_address and pod.addresses and not _is_among(address, pod.addresses):
            words = f"the connection comes from {address}, and {hello.pod} has {', '.join(pod.addresses)}"
            return _retry(hello, words, report=True)
        return None


def _is_among(address: str, addresses: tuple[str, ...]) -> bool:
    try:
        found = _plain(address)
        return any(found == _plain(known) for known in addresses)
    except ValueError:
        return False


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address; an IPv4 address in an IPv6 socket (::ffff:10.0.0.1) is an IPv4 address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _wrong(hello: Hello, why: str) -> Rejection:
    """Refuse for good, and show it at the job."""
    pod = hello.pod[:63]
    return Rejection(
        Refused(f"token: wrong for pod {pod!r} of this job: {why}"),
        f"an agent with the name {pod!r} has a wrong token: {why}",
    )


def _retry(hello: Hello, why: str, *, report: bool = False) -> Rejection:
    """Refuse for now. Only a reason that may last is shown at the job."""
    return Rejection(Refused(why, again=True), f"agent {hello.pod[:63]!r} is refused: {why}" if report else "")
