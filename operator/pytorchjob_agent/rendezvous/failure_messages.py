"""The message of a failure: torch's result for workers that ended, or the stacks of workers that hang."""

import os
from collections.abc import Collection, Mapping
from signal import SIGKILL, SIGTERM
from typing import Any

from pytorchjob_agent.contract.collectives import NOWHERE, CollectiveFault, GroupPosition, Places
from pytorchjob_agent.contract.messages import TRACEBACK_LIMIT, Assigned, Failed, Stop
from pytorchjob_agent.contract.noted_end import NotedEnd
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import ExitCode, TerminationMessage
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace, describe_ranks
from pytorchjob_agent.workers import failure_report, uncaught_error

_NO_STACK = "it gives no stack: it is frozen, or inside a call that does not return"

_REASONS: dict[int, ExitReason] = {
    ExitCode.FENCED: ExitReason.FENCED,
    ExitCode.RENDEZVOUS: ExitReason.RENDEZVOUS_FAILED,
    ExitCode.PREFLIGHT: ExitReason.PREFLIGHT_FAILED,
}
"""The reason of an end that the coordinator commanded with one of the agent's own codes."""


_STOPPED = (-SIGTERM, -SIGKILL)
"""A worker that was about to exit, and was stopped for others, has noted its own code."""


def explain(failures: Mapping[int, Any], group: Any, killed: Collection[int], logs: Any) -> TerminationMessage:
    """Return the first of torch's failures by rank; `killed` are local ranks, `logs` has the tails of their output.

    A worker that was killed counts if it had noted its end: it was about to exit.
    """
    local = {worker.global_rank: worker.local_rank for worker in group.workers}
    own = {rank: failed for rank, failed in failures.items() if local.get(rank) not in killed}
    if not failures:
        return TerminationMessage(ExitReason.WORKER_FAILED, ExitCode.WORKER_FAILED, message="the workers are unwell")
    found = [failure(rank, failed, logs) for rank, failed in (own or failures).items()]
    others = (worker for worker in group.workers if worker.global_rank not in {each.rank for each in found})
    return failure_report.explain_failures([*found, *filter(None, (_ended(worker, killed, logs) for worker in others))])


def noted_before(told: float, group: Any, logs: Any) -> TerminationMessage | None:
    """Return the failure that workers had noted before they were told to stop, at this monotonic time; None: none had.

    Such a worker was about to exit with an error. That others have reported theirs first makes it no consequence.
    """
    ends = [_ended(worker, [worker.local_rank], logs) for worker in group.workers]
    found = [end for end in ends if end is not None and end.noted.monotonic <= told]
    return None if all(end.evidence.early for end in found) else failure_report.explain_failures(found)


def _ended(worker: Any, killed: Collection[int], logs: Any) -> failure_report.WorkerFailure | None:
    """Return the end of a worker that torch does not count as failed; None if it ran until it was killed."""
    noted = NotedEnd() if logs is None else uncaught_error.read(_error_file(worker, logs), worker.id)
    if worker.local_rank in killed and not noted.at:
        return None
    code = int(bool(noted.errors)) if noted.code is None else noted.code
    tail = "" if logs is None else logs.tail(worker.local_rank)
    return failure_report.WorkerFailure(worker.global_rank, worker.local_rank, code, noted.at, tail=tail, noted=noted)


def all_succeeded(group: Any, killed: Collection[int], logs: Any) -> bool:
    """Return whether every worker has ended with success, or had noted that before it was killed."""
    ends = [_ended(worker, killed, logs) for worker in group.workers]
    return all(end is not None and end.evidence.early for end in ends)


def _error_file(worker: Any, logs: Any) -> str:
    return str(logs.error_file(worker.local_rank))


def failure(rank: int, failed: Any, logs: Any) -> failure_report.WorkerFailure:
    """Read torch's ProcessFailure."""
    data = failed.error_file_data if os.path.isfile(failed.error_file) else {}  # torch's placeholder has no content
    # torch forgets the path of an error file that does not exist.
    path = failed.error_file if logs is None else logs.error_file(failed.local_rank)
    noted = uncaught_error.read(path, failed.pid)
    return failure_report.WorkerFailure(
        rank=rank,
        local_rank=failed.local_rank,
        returncode=noted.code if noted.code is not None and failed.exitcode in _STOPPED else failed.exitcode,
        timestamp=noted.at or failed.timestamp,
        error=data if isinstance(data, dict) else {},
        noted=noted,
        tail=logs.tail(failed.local_rank) if logs is not None else "",
    )


def hang(
    verdict: HangVerdict,
    places: Mapping[int, StackPlace | None],
    first_rank: int,
    fault: CollectiveFault | None = None,
) -> tuple[TerminationMessage, bool]:
    """Return the message of workers that hang, and whether they only wait for others.

    `fault` is the collective that workers of this pod keep from ending, as far as this pod alone can tell.
    """
    suspects = verdict.local_ranks or tuple(places)
    if fault is not None:
        suspects = tuple(rank - first_rank for rank in fault.ranks)
    local = next((rank for rank in suspects if not _waits(places.get(rank))), suspects[0] if suspects else 0)
    place = places.get(local)
    message = f"{verdict.reason}; {_where(place, places, first_rank)}"
    report = TerminationMessage(ExitReason.WORKER_HANGS, ExitCode.WORKER_FAILED, first_rank + local, local, message)
    return report, fault is None and _waits(place)


def _where(place: StackPlace | None, places: Mapping[int, StackPlace | None], first_rank: int) -> str:
    """Return where the worker is; of several workers, which of them is elsewhere than the others."""
    if len(places) > 1:
        return describe_ranks({first_rank + local: each for local, each in places.items()})
    return f"it {place.words}" if place is not None else _NO_STACK


def bystander(
    places: Mapping[int, StackPlace | None], first_rank: int, fault: CollectiveFault | None = None
) -> tuple[TerminationMessage, bool]:
    """Return where the workers here are while those of another agent hang; see `hang`."""
    return hang(HangVerdict("no progress, as another agent found"), places, first_rank, fault)


def stopped(stop: Stop, own: TerminationMessage | None) -> TerminationMessage:
    """Return why an agent ends on the coordinator's command; `own` is the last failure here."""
    return TerminationMessage(
        _REASONS.get(stop.exit_code, ExitReason.WORKER_FAILED),
        stop.exit_code,
        rank=own.rank if own else None,
        local_rank=own.local_rank if own else None,
        message=stop.message,
        traceback=own.traceback if own else "",
    )


def ranks_at(places: Mapping[int, StackPlace | None], first_rank: int) -> dict[str, str | None]:
    """Return where the ranks are, without anything that changes from one hang to the next at the same place."""
    return {str(first_rank + local): None if at is None else at.where for local, at in sorted(places.items())}


def message(
    assigned: Assigned,
    report: TerminationMessage,
    *,
    waits: bool = False,
    stopped: bool = False,
    age: float = 0.0,
    idle: float = 0.0,
    places: Places = NOWHERE,
    positions: tuple[GroupPosition, ...] = (),
) -> Failed:
    """Return the report of a failure to the coordinator; `age`: seconds since then, `idle`: without progress before."""
    return Failed(
        round=assigned.round,
        rank=report.rank if report.rank is not None else assigned.first_rank,
        local_rank=report.local_rank or 0,
        exit_code=report.exit_code,
        message=report.message[:4096],
        traceback=report.traceback[-TRACEBACK_LIMIT:],
        also=report.failed_after,
        hang=report.reason == ExitReason.WORKER_HANGS,
        waits=waits,
        stopped=stopped,
        age=age,
        idle=idle,
        places=dict(sorted(places.items(), key=lambda item: item[0] != str(report.rank))),  # there is room for some
        positions=positions,
        errors=report.errors,
        raised_in=report.raised_in,
        early=report.early,
    )


def _waits(place: StackPlace | None) -> bool:
    return place is not None and place.collective is not None
