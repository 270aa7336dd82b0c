"""The report of a failed job: printed once, with the cause, rank, file and line, and the next step. Pure."""

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from signal import SIGKILL

from pytorchjob.local import kubelet
from pytorchjob.local.log_filter import ScriptPlace
from pytorchjob.local.node import ReplicaEnd
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import FailureKind
from pytorchjob_agent.contract.root_cause import CHILD_FAILED, choose
from pytorchjob_agent.contract.termination import exit_code_of
from pytorchjob_operator.model import ConditionType, FirstFailureStatus, PyTorchJob

_NO_SCRIPT = re.compile(r"can't open file '([^']+)': \[Errno 2\]")
"""Python's words."""
_NO_MODULE = re.compile(r"No module named '([^']+)'")
_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "yaml": "pyyaml"}
_STEPS = {
    r"at least one CUDA device|no GPUs found|only supported with GPUs|NCCL (?:is not|isn't) |have NCCL built in":
        "no GPU here: use gloo",
    r"Found no NVIDIA driver|No CUDA GPUs are available|not compiled with CUDA":
        "no GPU here: let the script use the CPU where torch.cuda.is_available() is false",
    r"EADDRINUSE|[Aa]ddress already in use":
        "end the process that has the port, or let the script take the port from MASTER_PORT",
    r": error: (?:the following arguments|unrecognized arguments|argument |ambiguous option)":
        "correct the arguments in the command of the job's file",
    r"\bMemoryError\b": "memory ran out: start fewer processes (spec.nprocPerNode), or load less",
}  # fmt: skip
"""What Python, torch and the system write, and the next step. The words choose the advice, never the cause."""

FindPlace = Callable[[int | None, str], ScriptPlace | None]
Blamed = tuple[int | None, str]
"""A rank, or a replica by its label."""


def blamed(job: PyTorchJob, ends: Sequence[ReplicaEnd]) -> Blamed | None:
    """Return who caused the failure; `ends` are the replicas that ended without success just before the job did."""
    known = _first(job)
    if known is not None and known.rank is not None and not _unexplained(known):
        return known.rank, ""
    if (first := _root_cause(ends)) is not None:
        return first.rank, first.label
    return (known.rank, _label(job, known)) if known is not None else None


def _unexplained(known: FirstFailureStatus) -> bool:
    """Return whether torchrun has told the coordinator no reason: what its workers have noted counts."""
    return known.error == CHILD_FAILED


def report(job: PyTorchJob, ends: Sequence[ReplicaEnd], find_place: FindPlace) -> list[str]:
    """Return the lines of the report.

    `ends` are the replicas that ended without success just before the job did, and what workers have noted.
    """
    known, who = _first(job), blamed(job, ends)
    first = _root_cause(ends) if known is None or known.rank is None or _unexplained(known) else None
    lines = [_message(job)]
    if first is not None and (first.rank is not None or known is None or first.label != _label(job, known)):
        lines.append(f"{first.label}: {first.how}{f': {first.why}' if first.why else ''}")
    how = _How.of(known, first)
    noted = first or next((end for end in ends if known is not None and end.rank == known.rank and end.place), None)
    place = noted.place if noted else None
    if place is None and who and how is _How.ERROR:
        place = find_place(*who)
    if place is not None:
        lines.append(f"at {place}; the traceback is above")
    return [*lines, f"next: {_next_step(how, ' '.join(lines), place)}"]


def _message(job: PyTorchJob) -> str:
    failed = job.status.condition(ConditionType.FAILED)
    return failed.message if failed else ""


def _first(job: PyTorchJob) -> FirstFailureStatus | None:
    return job.status.failure.first if job.status.failure is not None else None


def _label(job: PyTorchJob, known: FirstFailureStatus) -> str:
    """Return how a local run names the replica of a pod."""
    return known.pod.removeprefix(f"{job.metadata.name}-")


def with_place(message: str, first: FirstFailure | None, find_place: FindPlace) -> str:
    """Return the message of an event; that of a rank's failure with the place in its script, if that is known."""
    place = find_place(first.rank, "") if first is not None else None
    return f"{message} ({place})" if place else message


def _root_cause(ends: Sequence[ReplicaEnd]) -> ReplicaEnd | None:
    """Return the replica whose end caused the others'."""
    return choose(ends, lambda end: end.evidence) if ends else None


class _How(Enum):
    """How the first one ended, as far as it decides what to do next."""

    ERROR = auto()
    NOT_STARTED = auto()
    KILLED = auto()
    ENDED_EARLY = auto()

    @classmethod
    def of(cls, known: FirstFailureStatus | None, end: ReplicaEnd | None) -> "_How":
        """Return it from the end of a replica, or else from the job's status."""
        early = end.evidence.early if end is not None else known is not None and known.kind == FailureKind.ENDED_EARLY
        code = end.evidence.exit_code if end is not None else known.exit_code if known is not None else None
        if early:
            return cls.ENDED_EARLY
        return {exit_code_of(-SIGKILL): cls.KILLED, kubelet.START_ERROR: cls.NOT_STARTED}.get(code or 0, cls.ERROR)


def _next_step(how: _How, text: str, place: ScriptPlace | None) -> str:
    if module := _NO_MODULE.search(text):
        name = module[1].partition(".")[0]
        return f"install {_PACKAGES.get(name, name)} for the Python of this machine, or correct the import"
    for words, step in _STEPS.items():
        if re.search(words, text):
            return step
    if how is _How.ENDED_EARLY:
        return "let every rank take the same number of steps, or wait for the others before it ends"
    if place is not None:
        return f"correct {place.path}, line {place.line}, and run the job again"
    if script := _NO_SCRIPT.search(text):
        return f"there is no {script[1]}: correct the command in the job's file, or run it in the script's folder"
    if how is _How.NOT_STARTED:
        return "install this program on this machine, or correct the command in the job's file"
    if how is _How.KILLED:
        return "find what killed the process; if memory ran out, start fewer processes (spec.nprocPerNode)"
    return "read the lines above, or run again with --verbose, which prints every line of all replicas"
