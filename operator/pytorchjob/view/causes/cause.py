"""A row of the table of causes, and a finding: a cause that a job or a cluster has, with its evidence."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum

from pytorchjob.view import reading

_LONGEST = 800
"""Characters that are kept of what a component reports: the reason is mostly at the end."""
_WORDS = 200
"""Characters of it that a sentence about a cause has."""


class Symptom(StrEnum):
    """What a person notices first; the headings of the page."""

    NO_REACTION = "Nothing happens after the job is created"
    NO_PODS = "The job has no pods, or fewer than it should have"
    PENDING = "Pods stay Pending"
    NOT_STARTING = "Containers do not start"
    CRASHING = "Containers end with an error"
    NOT_JOINING = "Pods run, and training does not begin"
    SILENT = "The job runs and prints nothing"
    SLOW = "Training is slower than it should be"
    STOPPING = "Training stops or starts again"
    ENDED = "The job has failed by a limit"


class CauseLevel(IntEnum):
    """How far a cause is from the root: causes of a greater level follow from those of a smaller one."""

    ROOT = 0
    LIKELY_CONSEQUENCE = 1
    """Another failure often causes it."""
    CONSEQUENCE = 2
    """Something else always causes it."""
    OBSERVATION = 3
    """Nothing is known to be wrong: a person decides whether it is."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A step of the remedy: a sentence, and a command if there is one for it."""

    text: str
    command: str = ""
    needs: tuple[str, ...] = ()
    """The values without which a finding leaves this step out."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause. `{...}` in its texts stands for a value of the finding: the job, a pod, an image."""

    name: str
    """For programs: one CamelCase word that never changes."""
    symptom: Symptom
    sign: str
    """How the cause shows itself, for the page."""
    why: str
    """One sentence: what is wrong."""
    steps: tuple[Remedy, ...]
    """What to do, in this sequence."""
    level: CauseLevel = CauseLevel.ROOT


@dataclass(frozen=True, slots=True)
class CauseEvidence:
    """What was read, and where."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found."""

    cause: Cause
    values: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[CauseEvidence, ...] = ()
    pods: tuple[str, ...] = ()
    """The pods that have it; empty: the job or the cluster."""

    @property
    def why(self) -> str:
        """What is wrong, in one sentence."""
        return self.cause.why.format_map(_Values(self.values))

    @property
    def steps(self) -> tuple[Remedy, ...]:
        """What to do."""
        values = _Values(self.values)
        possible = (step for step in self.cause.steps if all(self.values.get(need) for need in step.needs))
        return tuple(Remedy(step.text.format_map(values), step.command.format_map(values)) for step in possible)


class _Values(dict[str, str]):
    """The values of a text; one that is not known is shown in capitals, as on the page."""

    def __missing__(self, key: str) -> str:
        return "..." if key == "words" else key.upper().replace("_", "-")


def on_the_page(text: str) -> str:
    """Return a text of a cause with the names of its values in capitals."""
    return text.format_map(_Values())


def from_pod(pod: reading.Object, source: str, text: object) -> CauseEvidence:
    """Return evidence that was read in a pod."""
    return CauseEvidence(f"pod {reading.name_of(pod)}, {source}", reading.line_of(text, _LONGEST))


def values_of(pod: reading.Object, words: object) -> dict[str, str]:
    """Return the values of most causes of a pod: its name, its node, and what a component reports."""
    return {
        "pod": reading.name_of(pod),
        "node": reading.node_of(pod) or "NODE",
        "words": reading.line_of(words, _WORDS),
    }


def merge(found: Iterable[Finding], apart: str = "") -> Iterator[Finding]:
    """Yield each cause once: the first finding, with the pods of all. Another value of `apart` is another finding."""
    by_cause: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in found:
        by_cause.setdefault((finding.cause.name, finding.values.get(apart)), []).append(finding)
    for same in by_cause.values():
        yield replace(same[0], pods=tuple(dict.fromkeys(pod for finding in same for pod in finding.pods)))


FIRST_ERROR = Remedy(
    "Find the rank that failed first: its error comes first.",
    "pytorchjob logs {job} -n {namespace} --grep 'Traceback|Error'",
)


CREATE_AGAIN = Remedy(
    "Then create the job again; the templates of a running job cannot change.",
    "kubectl delete pytorchjobs/{job} -n {namespace} && kubectl apply -n {namespace} -f FILE",
)


def delete_and_apply(what: str) -> tuple[Remedy, ...]:
    """Return the steps that correct a job: its templates cannot change while it runs."""
    return Remedy(what), CREATE_AGAIN
