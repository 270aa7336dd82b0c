"""The report of a failed job: printed once, with the cause, rank, file and line, and the next step. Pure."""

import re
from collections.abc import Callable, Sequence

from pytorchjob_operator.local.log_filter import Place
from pytorchjob_operator.local.node import ReplicaEnd
from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.rounds.budget import sounds_like_consequence

_RANK = re.compile(r"rank (\d+) \(")
"""How the coordinator's messages begin."""
_KILLED = re.compile(r"SIGKILL|exit(?:ed with)?(?: code)? 137\b")

_NO_SCRIPT = re.compile(r"can't open file '([^']+)': \[Errno 2\]")
"""Python's words."""
_NO_PROGRAM = re.compile(r"cannot start '([^']+)' on this machine .*: No such file")
"""The words of a local run (`supervisor.py`)."""

FindPlace = Callable[[int | None, str], Place | None]


def report(job: PyTorchJob, ends: Sequence[ReplicaEnd], find_place: FindPlace) -> list[str]:
    """Return the lines of the report; `ends` are the replicas that ended without success just before the job did."""
    failed = job.status.condition(ConditionType.FAILED)
    message = failed.message if failed else ""
    rank = _RANK.match(message)
    first = None if rank else _root_cause(ends)
    lines = [message]
    if first is not None and f"{job.metadata.name}-{first.label}" not in message:
        lines.append(f"{first.label}: {first.how}{f': {first.why}' if first.why else ''}")
    place = find_place(int(rank[1]), "") if rank else find_place(None, first.label) if first else None
    if place is not None:
        lines.append(f"at {place}; the traceback is above")
    return [*lines, f"next: {_next_step(' '.join(lines), place)}"]


def with_place(message: str, find_place: FindPlace) -> str:
    """Return the message of a rank's failure with the place in its script, if that is known."""
    rank = _RANK.match(message)
    place = find_place(int(rank[1]), "") if rank else None
    return f"{message} ({place})" if place else message


def _root_cause(ends: Sequence[ReplicaEnd]) -> ReplicaEnd | None:
    """Return the first replica whose end does not look like the consequence of another's."""
    return min(ends, key=lambda end: sounds_like_consequence(end.why), default=None)


def _next_step(text: str, place: Place | None) -> str:
    if place is not None:
        return f"correct {place.path}, line {place.line}, and run the job again"
    if script := _NO_SCRIPT.search(text):
        return f"there is no {script[1]}: correct the command in the job's file, or run it in the script's folder"
    if program := _NO_PROGRAM.search(text):
        return f"install {program[1]} on this machine, or correct the command in the job's file"
    if _KILLED.search(text):
        return "find what killed the process; if memory ran out, start fewer processes (spec.nprocPerNode)"
    return "read the lines above, or run again with --verbose, which prints every line of all replicas"
