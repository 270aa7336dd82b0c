"""The table of all causes, and the diagnosis: root causes first, and what only follows from them by name alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pytorchjob.view.causes import (
    admission,
    announcements,
    containers,
    devices,
    handover,
    images,
    installation,
    limits,
    nodes,
    programs,
    queues,
    scheduling,
    silence,
    stragglers,
    training,
)
from pytorchjob.view.causes.cause import Cause, CauseLevel, Finding
from pytorchjob.view.seen import Seen

_AREAS: tuple[tuple[tuple[Cause, ...], Callable[[Seen], Iterator[Finding]]], ...] = (
    (installation.CAUSES, installation.find),
    (handover.CAUSES, handover.find),
    (queues.CAUSES, queues.find),
    (admission.CAUSES, admission.find),
    (scheduling.CAUSES, scheduling.find),
    (images.CAUSES, images.find),
    (containers.CAUSES, containers.find),
    (nodes.CAUSES, nodes.find),
    (devices.CAUSES, devices.find),
    (announcements.CAUSES, announcements.find),
    (programs.CAUSES, programs.find),
    (training.CAUSES, training.find),
    (silence.CAUSES, silence.find),
    (stragglers.CAUSES, stragglers.find),
    (limits.CAUSES, limits.find),
)
CAUSES = tuple(dict.fromkeys(cause for causes, _ in _AREAS for cause in causes))
"""All causes, in the sequence of a job's life."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found."""

    findings: tuple[Finding, ...] = ()
    """The causes that nothing else explains."""
    consequences: tuple[Finding, ...] = ()
    """What follows from them."""
    observations: tuple[Finding, ...] = ()
    """What was noticed in a job without any finding: not known to be wrong."""


def diagnose(seen: Seen) -> Diagnosis:
    """Find the causes. Findings of a greater level are consequences as soon as there is one of a smaller level."""
    all_found = [_complete(seen, finding) for _, find in _AREAS for finding in find(seen)]
    found = [finding for finding in all_found if finding.cause.level is not CauseLevel.OBSERVATION]
    least = min((finding.cause.level for finding in found), default=CauseLevel.ROOT)
    roots = [finding for finding in found if finding.cause.level == least]
    consequences = [finding for finding in found if finding.cause.level > least]
    return Diagnosis(tuple(_once(roots)), tuple(_once(consequences)), () if found else tuple(all_found))


def _once(found: list[Finding]) -> Iterator[Finding]:
    """Yield each cause once; a cause that two areas found keeps the evidence of both."""
    by_key: dict[tuple[str, str], Finding] = {}
    for finding in found:
        key = finding.cause.name, finding.why
        same = next((known for known in by_key if known[0] == finding.cause.name and not finding.pods), key)
        first = by_key.get(same)
        evidence = tuple(dict.fromkeys((*(first.evidence if first else ()), *finding.evidence)))
        pods = tuple(dict.fromkeys((*(first.pods if first else ()), *finding.pods)))
        by_key[same] = replace(first or finding, evidence=evidence, pods=pods)
    yield from by_key.values()


def _complete(seen: Seen, finding: Finding) -> Finding:
    """Add the values that every cause may use."""
    return replace(finding, values={"job": seen.name or "JOB", "namespace": seen.namespace, **finding.values})
