"""Finds every difference between the rights of an account and its requests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tests.rights.exceptions import Exemption, exemption
from tests.rights.granted import Right, written
from tests.rights.requests import Request

KUBERNETES_OWN = frozenset(["system:discovery", "system:service-account-issuer-discovery"])
"""Bindings of Kubernetes for every service account; the operator may rely on them."""
_WITHOUT_NAME = frozenset(["create", "list", "watch", "deletecollection"])
"""Verbs whose requests name no object, so that a role cannot limit them to one."""


def differences(
    rights: Sequence[Right], made: Iterable[Request], exceptions: Sequence[Exemption], home: str
) -> list[str]:
    """Return each difference as a sentence with what to do; `home` is the account's own namespace."""
    known = sorted(set(made))
    return [
        *(text for right in rights for text in _of_right(right, known, exceptions, home)),
        *(text for request in known for text in _of_request(request, rights)),
        *(text for exemption in exceptions for text in _of_exemption(exemption, rights)),
    ]


def used(right: Right, made: Iterable[Request]) -> list[Request]:
    """Return the allowed requests that a right covers."""
    return [request for request in made if not request.refused and right.covers(request)]


def requests_of(right: Right, counted: Counter[Request]) -> int:
    """Return the number of requests that used a right."""
    return sum(counted[request] for request in used(right, counted))


def _of_right(right: Right, made: Sequence[Request], exceptions: Sequence[Exemption], home: str) -> Iterator[str]:
    found, excepted = used(right, made), exemption(right, exceptions)
    if "*" in (right.group, right.resource, right.verb):
        yield f"wildcard: {right}: no comparison shows what of it is used; name the resource and the verbs"
    elif excepted and found:
        yield f"exception used: {right}: remove it from tests/rights/exceptions.py"
    elif not excepted and not found:
        yield f"granted, not used: {right}: remove it from the chart, or write the end-to-end test that needs it"
    elif found:
        yield from _too_wide(right, found, home)


def _too_wide(right: Right, found: Sequence[Request], home: str) -> Iterator[str]:
    if not right.namespace and {request.namespace for request in found} == {home}:
        yield f"too wide: {right}: it is used in namespace {home} only; a Role there suffices"
    names = {request.name for request in found}
    if right.namespace == home and not right.name and right.verb not in _WITHOUT_NAME and len(names) == 1:
        yield f"too wide: {right}: it is used on {names.pop()} only; limit it by resourceNames"


def _of_request(request: Request, rights: Sequence[Right]) -> Iterator[str]:
    text = f"{request.verb} {written(request.group, request.resource)} {request.name}".rstrip()
    where = f" in namespace {request.namespace}" if request.namespace else ""
    if request.refused:
        yield f"used, not granted: {text}{where}: the API server refused it; grant it, or do not request it"
    elif request.binding not in KUBERNETES_OWN and not any(right.covers(request) for right in rights):
        yield f"used, not granted: {text}{where}: allowed by the binding {request.binding}, which is not the chart's"


def _of_exemption(exemption: Exemption, rights: Sequence[Right]) -> Iterator[str]:
    for verb in () if exemption.optional else sorted(exemption.verbs):
        if not any(exemption.concerns(right) and right.verb == verb for right in rights):
            right = f"{verb} {written(exemption.group, exemption.resource)}"
            yield f"exception not granted: {right}: remove it from tests/rights/exceptions.py"
