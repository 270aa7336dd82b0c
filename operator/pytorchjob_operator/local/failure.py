"""The report of a failed job: printed once, with the cause, rank, file and line, and the next step. Pure."""

import re
from collections.abc import Callable, Sequence

from pytorchjob_agent.contract.messages import CAUSE_UNKNOWN
from pytorchjob_agent.contract.root_cause import EARLY, choose
from pytorchjob_operator.local.log_filter import Place
from pytorchjob_operator.local.node import ReplicaEnd
from pytorchjob_operator.model import ConditionType, PyTorchJob

_RANK = re.compile(r"rank (\d+) \(([^)]+)\)")
"""How the coordinator's messages begin."""
_KILLED = re.compile(r"SIGKILL|exit(?:ed with)?(?: code)? 137\b")

_NO_SCRIPT = re.compile(r"can't open file '([^']+)': \[Errno 2\]")
"""Python's words."""
_NO_PROGRAM = re.compile(r"cannot start '([^']+)' on this machine .*: No such file")
"""The words of a local run (`supervisor.py`)."""

_NO_MODULE = re.compile(r"No module named '([^']+)'")
_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "yaml": "pyyaml"}
_STEPS = {
    r"at least one CUDA device|no GPUs found|only supported with GPUs|NCCL (?:is not|isn't) |have NCCL built in":
        "no GPU here: use gloo",
    r"Found no NVIDIA driver|No CUDA GPUs are available|not compiled with CUDA":
        "no GPU here: let the script use the CPU where torch.cuda.is_available() is false",
    r"EADDRINUSE|[Aa]ddress already in use":
        "end the process that has the port, or let the script take the port from MASTER_PORT",
    re.escape(EARLY): "let every rank take the same number of steps, or wait for the others before it ends",
    r": error: (?:the following arguments|unrecognized arguments|argument |ambiguous option)":
        "correct the arguments in the command of the job's file",
    r"\bMemoryError\b": "memory ran out: start fewer processes (spec.nprocPerNode), or load less",
}  # fmt: skip
"""What Python, torch and the system write, and the next step. The words choose the advice, never the cause."""

FindPlace = Callable[[int | None, str], Place | None]
Blamed = tuple[int | None, str]
"""A rank, or a replica by its label."""


def blamed(job: PyTorchJob, ends: Sequence[ReplicaEnd]) -> Blamed | None:
    """Return who caused the failure; `ends` are the replicas that ended without success just before the job did."""
    rank = _RANK.match(_message(job))
    if rank is not None and not unexplained(job):
        return int(rank[1]), ""
    if (first := _root_cause(ends)) is not None:
        return first.rank, first.label
    return (int(rank[1]), rank[2].removeprefix(f"{job.metadata.name}-")) if rank else None


def unexplained(job: PyTorchJob) -> bool:
    """Return whether torchrun has told the coordinator no reason: what its workers have noted counts."""
    return CAUSE_UNKNOWN in _message(job)


def report(job: PyTorchJob, ends: Sequence[ReplicaEnd], find_place: FindPlace) -> list[str]:
    """Return the lines of the report; `ends` are the replicas that ended without success just before the job did."""
    message = _message(job)
    who = blamed(job, ends)
    first = _root_cause(ends) if unexplained(job) or not _RANK.match(message) else None
    lines = [message]
    if first is not None and (first.rank is not None or f"{job.metadata.name}-{first.label}" not in message):
        lines.append(f"{first.label}: {first.how}{f': {first.why}' if first.why else ''}")
    text = " ".join(lines)
    place = first.place if first else None
    if place is None and who and EARLY not in text and not _KILLED.search(text):
        place = find_place(*who)
    if place is not None:
        lines.append(f"at {place}; the traceback is above")
    return [*lines, f"next: {_next_step(text, place)}"]


def _message(job: PyTorchJob) -> str:
    failed = job.status.condition(ConditionType.FAILED)
    return failed.message if failed else ""


def with_place(message: str, find_place: FindPlace) -> str:
    """Return the message of a rank's failure with the place in its script, if that is known."""
    rank = _RANK.match(message)
    place = find_place(int(rank[1]), "") if rank else None
    return f"{message} ({place})" if place else message


def _root_cause(ends: Sequence[ReplicaEnd]) -> ReplicaEnd | None:
    """Return the replica whose end caused the others'."""
    return choose(ends, lambda end: end.evidence) if ends else None


def _next_step(text: str, place: Place | None) -> str:
    if module := _NO_MODULE.search(text):
        name = module[1].partition(".")[0]
        return f"install {_PACKAGES.get(name, name)} for the Python of this machine, or correct the import"
    for words, step in _STEPS.items():
        if re.search(words, text):
            return step
    if place is not None:
        return f"correct {place.path}, line {place.line}, and run the job again"
    if script := _NO_SCRIPT.search(text):
        return f"there is no {script[1]}: correct the command in the job's file, or run it in the script's folder"
    if program := _NO_PROGRAM.search(text):
        return f"install {program[1]} on this machine, or correct the command in the job's file"
    if _KILLED.search(text):
        return "find what killed the process; if memory ran out, start fewer processes (spec.nprocPerNode)"
    return "read the lines above, or run again with --verbose, which prints every line of all replicas"
