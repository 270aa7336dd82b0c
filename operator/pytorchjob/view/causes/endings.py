"""Containers of a job that ended with an error, and what is known about why: the material of several rules.

A container that has run well again for a while is over its error, which is then no cause of anything present.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pytorchjob.view import reading
from pytorchjob.view.causes.cause import CauseEvidence
from pytorchjob.view.reading import Object
from pytorchjob.view.seen import Seen
from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.contract.reasons import FailureKind
from pytorchjob_agent.contract.termination import TerminationMessage
from pytorchjob_operator.problem import read_time

RECENT = timedelta(seconds=120)
"""A container that runs this long again is over its error, and so is a round."""
_EVENTS = timedelta(minutes=10)
"""For this long the events of a pod that was replaced explain a job that has not recovered."""
_JOB = "the job"


@dataclass(frozen=True, slots=True)
class Ending:
    """A container that ended with an error."""

    pod: str
    container: str
    node: str
    code: int
    reason: str
    """The kubelet's: Error, OOMKilled, StartError."""
    agent: TerminationMessage | None
    """What an agent wrote; None for any other container."""
    text: str
    """The end of what it wrote, or the kubelet's message."""
    at: datetime | None
    again: bool
    """Whether the container was started again since."""
    image: str

    @property
    def evidence(self) -> CauseEvidence:
        """Return what the pod's status shows of it."""
        agent = f", {self.agent.reason}" if self.agent else ""
        rank = f" (rank {self.agent.rank})" if self.agent and self.agent.rank is not None else ""
        lines = [line.strip() for line in self.words.splitlines() if line.strip()]
        source = f"pod {self.pod}, container {self.container} ended with code {self.code}, {self.reason}{agent}{rank}"
        return CauseEvidence(source, reading.line_of(lines[-1] if lines else "it wrote nothing"))

    @property
    def words(self) -> str:
        """Return the message for people: the agent's, or the text."""
        return self.agent.message if self.agent else self.text

    @property
    def everything(self) -> str:
        """Return all that is known of its output."""
        return f"{self.agent.message}\n{self.agent.traceback}" if self.agent else self.text


@dataclass(frozen=True, slots=True)
class Statement:
    """What a program wrote before it failed, with where it was read."""

    text: str
    evidence: CauseEvidence
    pod: str = ""
    rank: str = ""
    """Empty: unknown."""
    code: int = 0
    """The exit code of the worker that failed, or of the container."""
    ending: Ending | None = None
    """The container that wrote it."""
    hangs: bool = False
    """True if the rank did not fail, but hung."""


def find_endings(seen: Seen) -> list[Ending]:
    """Return the containers that ended with an error, the earliest first: it is the likeliest root."""
    if seen.ended == "Succeeded":
        return []
    found = [ending for pod in seen.pods for ending in _of_pod(seen, pod)]
    return sorted(found, key=lambda ending: (ending.at is None, ending.at or seen.now))


def _of_pod(seen: Seen, pod: Object) -> Iterator[Ending]:
    for container in reading.containers(pod):
        ended = _error(seen, container)
        if not ended:
            continue
        name = reading.name_of(pod)
        message = str(ended.get("message") or "")
        agent = _agent(message)
        yield Ending(
            pod=name,
            container=str(container.get("name")),
            node=reading.node_of(pod) or "NODE",
            code=reading.whole(ended.get("exitCode")) or 0,
            reason=str(ended.get("reason") or "Error"),
            agent=agent,
            text=message or seen.logs.get(name, ""),
            at=read_time(ended.get("finishedAt")),
            again="running" in reading.part(container, "state"),
            image=str(container.get("image") or ""),
        )


def _error(seen: Seen, container: Object) -> Object:
    """Return how the container ended, if that was an error that is not over."""
    now = reading.part(container, "state", "terminated")
    if now:
        return now if now.get("exitCode") else {}
    last = reading.part(container, "lastState", "terminated")
    started = read_time(reading.part(container, "state", "running").get("startedAt"))
    over = started is not None and seen.now - started > RECENT
    return last if last.get("exitCode") and not over else {}


def _agent(message: str) -> TerminationMessage | None:
    try:
        return TerminationMessage.from_json(message)
    except ContractError:
        return None


def statements(seen: Seen) -> list[Statement]:
    """Return what programs wrote before present failures: containers first, then what the job's status keeps."""
    found = [of_ending(ending, ending.everything) for ending in find_endings(seen) if ending.reason != "OOMKilled"]
    return [*found, *_of_job(seen)]


def of_ending(ending: Ending, text: str) -> Statement:
    """Return a text about the end of a container, with what its agent or the kubelet knows of it."""
    rank, code = (ending.agent.rank, ending.agent.exit_code) if ending.agent else (None, ending.code)
    return Statement(text, ending.evidence, ending.pod, _rank(rank), code, ending)


def _rank(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _of_job(seen: Seen) -> Iterator[Statement]:
    """Yield the failure after which the job ended, and that after which its workers were started again."""
    failed = reading.part(seen.status, "failure")
    if first := reading.part(failed, "first"):
        words = reading.condition(seen.job, "Failed").get("message")
        yield _statement(first, f"{_JOB}'s condition Failed, {failed.get('reason')}", words)
    last = reading.part(seen.status, "elastic", "lastRestart")
    time = read_time(last.get("time"))
    recent = time is not None and (seen.ended == "Failed" or seen.now - time <= RECENT)
    if recent and (first := reading.part(last, "first")):
        yield _statement(first, f"{_JOB}'s last restart, {last.get('reason')}", last.get("message"))


def _statement(first: Object, source: str, words: object) -> Statement:
    return Statement(
        str(first.get("message") or ""),
        CauseEvidence(source, reading.line_of(words, 600)),
        str(first.get("pod") or ""),
        _rank(reading.whole(first.get("rank"))),
        reading.whole(first.get("exitCode")) or 0,
        hangs=first.get("kind") == FailureKind.HANGS,
    )


def past_events(seen: Seen) -> Iterator[Object]:
    """Yield the job's events that explain why it is not well now, the newest first: its pods may have been replaced.

    A job of which all pods run is over what its events report.
    """
    if seen.ended == "Succeeded" or seen.suspended or (not seen.ended and _all_run(seen)):
        return
    end = reading.changed_at(reading.condition(seen.job, "Failed")) or seen.now
    for event in seen.events_of(seen.job):
        time = reading.event_time(event)
        if time is not None and time >= end - _EVENTS:
            yield event


def _all_run(seen: Seen) -> bool:
    running = sum(map(reading.runs, seen.living_pods()))
    return running >= seen.wanted_pods()
