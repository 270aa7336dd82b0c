"""The requests of an account, read from the API server's audit log."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_REASON = "authorization.k8s.io/reason"
_DECISION = "authorization.k8s.io/decision"
_OPENED = "ResponseStarted"
_BINDING = re.compile(r'allowed by \w+ "([^"]+)"')


@dataclass(frozen=True, order=True)
class Request:
    """What was requested, and what the authorizer decided; an answer like 404 or 409 comes after that."""

    group: str
    resource: str
    """With its subresource after a slash; the path of a request that names no resource."""
    verb: str
    namespace: str = ""
    name: str = ""
    refused: bool = False
    binding: str = ""
    """The binding by which it was allowed."""


def requests(lines: Iterable[bytes], user: str) -> Counter[Request]:
    """Count the requests of a user. A line in writing, which has no end yet, is left out."""
    mark = json.dumps(user).encode()
    whole = (json.loads(line) for line in lines if mark in line and line.endswith(b"\n"))
    return Counter(_request(event) for event in whole if event["user"]["username"] == user and _counts(event))


def _counts(entry: dict[str, Any]) -> bool:
    """Whether an entry stands for a request that was judged; a busy server rejects some before that.

    A watch has one entry when it is opened and another when it ends. If it is refused, it has the second one only.
    """
    decision = _annotation(entry, _DECISION)
    return decision == "forbid" or (decision == "allow" and (entry["verb"] != "watch" or entry["stage"] == _OPENED))


def _annotation(entry: dict[str, Any], name: str) -> str:
    return str(entry.get("annotations", {}).get(name, ""))


def _request(entry: dict[str, Any]) -> Request:
    target = entry.get("objectRef") or {}
    resource = "/".join(part for part in (target.get("resource"), target.get("subresource")) if part)
    binding = _BINDING.search(_annotation(entry, _REASON))
    return Request(
        group=target.get("apiGroup", ""),
        resource=resource or entry["requestURI"].partition("?")[0],
        verb=entry["verb"],
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        refused=_annotation(entry, _DECISION) == "forbid",
        binding=binding.group(1) if binding else "",
    )
