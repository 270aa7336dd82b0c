"""What the API server's audit log says of one stretch of time: who asked what, to the microsecond.

The log is the judge: objects themselves carry whole seconds.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

OPERATOR = "pytorchjob-operator/"


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request."""

    verb: str
    resource: str
    namespace: str
    code: int
    user_agent: str
    received: float
    answered: float

    def is_a(self, verb: str, resource: str) -> bool:
        """Whether it did this, with success."""
        return (self.verb, self.resource) == (verb, resource) and 200 <= self.code < 300


class Audit:
    """The requests that were answered since this object was made; a watch counts when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size

    def requests(self, user_agent: str = "", namespace: str | None = None) -> list[Request]:
        """Those of one user agent (the beginning of its name) and one namespace."""
        found = (_request(line) for line in self._lines())
        return [
            request
            for request in found
            if request.user_agent.startswith(user_agent) and namespace in (None, request.namespace)
        ]

    def counts(self, user_agent: str, namespace: str | None = None) -> Counter[tuple[str, str]]:
        """How often what was asked, the Lease aside."""
        asked = self.requests(user_agent, namespace)
        return Counter((request.verb, request.resource) for request in asked if request.resource != "leases")

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._start)
            for raw in file.read().split(b"\n")[:-1]:
                line = json.loads(raw)
                # A watch is told of twice: when it is opened, and when it ends.
                if line["verb"] != "watch" or line["stage"] == "ResponseStarted":
                    yield line


def _request(line: dict[str, Any]) -> Request:
    about = line.get("objectRef") or {}
    return Request(
        verb=line["verb"],
        resource="/".join(part for part in (about.get("resource"), about.get("subresource")) if part),
        namespace=about.get("namespace", ""),
        code=(line.get("responseStatus") or {}).get("code", 0),
        user_agent=line.get("userAgent", ""),
        received=datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp(),
        answered=datetime.fromisoformat(line["stageTimestamp"]).timestamp(),
    )
