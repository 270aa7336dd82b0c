"""What a report is made of, as it was read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytorchjob.cluster.api import Object
from pytorchjob.view.seen import Seen


@dataclass(slots=True)
class ReportSources:
    """What was read, with its secrets."""

    seen: Seen
    """As `status` reads it."""
    deep: Seen
    """As `doctor` reads it."""
    pods: Sequence[Object] = ()
    events: Sequence[Object] = ()
    services: Sequence[Object] = ()
    versions: dict[str, str] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    """Text by the name of its file."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What is missing, and why."""


def everything(sources: ReportSources) -> list[Any]:
    """Return all that may hold a secret."""
    seen, deep = sources.seen, sources.deep
    return [
        seen.job,
        sources.pods,
        sources.events,
        sources.services,
        deep.operator.deployments or (),
        deep.operator.v1 or (),
        deep.workloads or (),
        dict(deep.claims),
        *sources.logs.values(),
        *deep.logs.values(),
        *seen.last_lines.values(),
        *deep.last_lines.values(),
    ]
