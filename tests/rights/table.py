"""The table of rights and requests, in Markdown."""

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.rights.compare import KUBERNETES_OWN, requests_of
from tests.rights.exceptions import Exemption, exemption
from tests.rights.granted import Right, written
from tests.rights.requests import Request

_HEAD = ("right on", "verb", "named", "in namespace", "requests")


def page(
    rights: Sequence[Right], counted: Counter[Request], exceptions: Sequence[Exemption], found: Sequence[str]
) -> str:
    """Return the whole page: the verdict, each right with its number of requests, and what Kubernetes itself grants."""
    used = sum(requests_of(right, counted) > 0 for right in rights)
    excepted = sum(exemption(right, exceptions) is not None for right in rights)
    verdict = f"Rights: {len(rights)}. Used by the end-to-end tests: {used}. Exceptions: {excepted}."
    lines = [
        f"{verdict} Differences: {len(found)}.",
        "",
        *(f"- {text}" for text in found),
        *([""] if found else []),
        *_rows(_HEAD, (_right(right, counted, exceptions) for right in rights)),
        "",
        "By roles that Kubernetes binds to every service account:",
        "",
        *_rows(("path", "verb", "binding", "requests"), _own(counted)),
    ]
    return "\n".join(lines) + "\n"


def _right(right: Right, counted: Counter[Request], exceptions: Sequence[Exemption]) -> tuple[str, ...]:
    known, number = exemption(right, exceptions), requests_of(right, counted)
    requests = f"none: {known.reason} (`{known.test}`)" if known and not number else str(number)
    return written(right.group, right.resource), right.verb, right.name, right.namespace or "(all)", requests


def _own(counted: Counter[Request]) -> list[tuple[str, ...]]:
    found = Counter[tuple[str, str, str]]()
    for request, number in counted.items():
        if request.binding in KUBERNETES_OWN:
            found[written(request.group, request.resource), request.verb, request.binding] += number
    return [(*key, str(number)) for key, number in sorted(found.items())]


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
