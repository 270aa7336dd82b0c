"""What recently happened to a job: from conditions, the last restart, containers that ended, and events."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pytorchjob.view import reading
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_operator.problem import last_words, read_time

_CONDITIONS = (
    ("Failed", "True"),
    ("Degraded", "True"),
    ("ReplicaFailure", "True"),
    ("ConfigValid", "False"),
    ("Restarting", "True"),
)
_REPEATED = (
    "BackOff",
    "SuccessfulCreatePod",
    "Pulling",
    "Pulled",
    "Created",
    "Started",
    "Scheduled",
    "PyTorchJobCreated",
)
"""Events that are no cause of anything, or that repeat the reason of another one."""
_SAME = 60
"""Texts with this many equal characters at their beginning are about the same thing."""
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that happened."""

    at: datetime | None
    reason: str
    text: str


def recent(seen: Seen, most: int = 5) -> tuple[Happened, ...]:
    """Return what happened last, the newest first, each thing once."""
    found = sorted(_all(seen), key=lambda happened: happened.at or _EARLIEST, reverse=True)
    chosen: list[Happened] = []
    for happened in found:
        if happened.text and not any(_about_the_same(happened, known) for known in chosen):
            chosen.append(happened)
    return tuple(chosen[:most])


def _about_the_same(happened: Happened, known: Happened) -> bool:
    first, second = happened.text, known.text
    return first[:_SAME] in second or second[:_SAME] in first


def _all(seen: Seen) -> Iterator[Happened]:
    yield from _of_conditions(seen)
    for pod in seen.pods:
        yield from _of_pod(pod)
    for event in seen.events:
        if event.get("reason") not in _REPEATED:
            text = reading.line_of(event.get("message"))
            yield Happened(reading.event_time(event), str(event.get("reason") or ""), text)


def _of_conditions(seen: Seen) -> Iterator[Happened]:
    for kind, status in _CONDITIONS:
        if shown := reading.condition(seen.job, kind, status):
            reason = str(shown.get("reason") or kind)
            yield Happened(reading.changed_at(shown), reason, reading.line_of(shown.get("message")))
    last = reading.part(seen.status, "elastic", "lastRestart")
    if last:
        yield Happened(read_time(last.get("time")), str(last.get("reason")), reading.line_of(last.get("message")))


def _of_pod(pod: Object) -> Iterator[Happened]:
    for container in reading.containers(pod):
        for key in ("state", "lastState"):
            ended = reading.part(container, key, "terminated")
            if ended.get("exitCode"):
                yield _ended(reading.name_of(pod), container, ended)


def _ended(pod: str, container: Object, ended: Object) -> Happened:
    reason, message = last_words(str(ended.get("message") or ""))
    words = ": ".join(word for word in (reason, message) if word)
    text = f"{pod} ended with code {ended.get('exitCode')}{f': {words}' if words else ''}"
    return Happened(read_time(ended.get("finishedAt")), str(ended.get("reason") or "Error"), reading.line_of(text))
