"""What follows when workers fail: another round, after a pause, or the end of the job; and the reason.

Only failures count, never changes of members. `root_cause` chooses the failure that caused the others; the message
counts the other ranks that failed too.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from signal import SIGABRT

from pytorchjob_agent.contract.collectives import WAITED, CollectiveFault, find_fault
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import EndReason, FailureKind, TrainingReason
from pytorchjob_agent.contract.repeated import (
    HANG_SECONDS,
    SAME_HANG,
    SHORT_SECONDS,
    why_repeated,
    why_same_hang,
)
from pytorchjob_agent.contract.root_cause import choose, doubt
from pytorchjob_agent.contract.termination import exit_code_of
from pytorchjob_operator.rounds import past_failures
from pytorchjob_operator.rounds.phases import LastWorkers, Rendezvous
from pytorchjob_operator.rounds.state import JobState
from pytorchjob_operator.rounds.values import End, Failure, PastRestart, Policy

SAME_ERROR = 3
"""The same error this many times in a row, each before the first step, ends the job."""
_UNCAUGHT = 1
_ABORTED = exit_code_of(-SIGABRT)
_WATCHDOG = 5.0
"""Seconds: no watchdog of torch has a shorter limit in practice, and a lost peer is noticed sooner."""
NO_PROGRESS = 3
"""This many failures in a row that do not get past the step of the failures before end the job."""
LONGEST_PAUSE = 60.0
_HISTORY = 200
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """What follows from one failed round."""

    end: End | None
    restart: PastRestart
    pause: float
    """Seconds until the next round may start."""
    message: str
    """The failure in one sentence."""


def root_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure that caused the others, with the rank at fault."""
    return _blamed(failures)[0]


def _blamed(failures: Sequence[Failure]) -> tuple[Failure, CollectiveFault | None]:
    """Return that failure, and the collective that its rank kept from ending, if nothing else explains it."""
    first = choose(failures, lambda failure: failure.evidence)
    fault = _collective_fault(failures, first)
    if fault is None:
        return first, None
    at_fault = [each for each in failures if any(known.rank in fault.ranks for known in each.positions)]
    chosen = min(at_fault, key=lambda each: each.waits)  # a rank may wait for another one without a collective
    ranks = {known.rank for known in chosen.positions}.intersection(fault.ranks)
    return replace(chosen, rank=chosen.rank if chosen.rank in ranks else min(ranks), waits=False), fault


def _collective_fault(failures: Sequence[Failure], first: Failure) -> CollectiveFault | None:
    """Return which rank kept the others waiting in a collective, if nothing else explains the failures.

    It explains a hang, and the end of ranks that their watchdog has aborted. A rank that lost a peer aborts at once.
    """
    if first.hang and any(failure.idle for failure in failures):
        waited = WAITED
    elif first.exit_code == _ABORTED and not first.errors:
        waited = _WATCHDOG
    else:
        return None
    return find_fault([known for failure in failures for known in failure.positions], waited, _places(failures))


def _places(failures: Sequence[Failure]) -> dict[str, str | None]:
    """Return where the ranks of all pods are."""
    return {rank: at for failure in failures for rank, at in failure.places.items()}


def with_early_ends(state: JobState, failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Return the failures of the last round, and the first ranks of the members whose workers have succeeded in it."""
    round_ = state.round
    if round_ is None or not failures:
        return failures
    found, first_rank = [], 0
    for rank, index in enumerate(round_.ranks):
        if rank in round_.left:
            if not round_.nprocs:
                return failures
            first_rank += round_.nprocs[rank]
            continue
        member = None if index is None else state.members.get(index)
        if member is None:
            return failures  # without its number of workers, no rank after it is known
        if member.index in round_.done and member.done_at is not None:
            found.append(Failure(member.index, first_rank, 0, "", "", member.done_at, early=True))
        first_rank += member.nproc
    return (*failures, *found)


def may_be_consequence(failure: Failure) -> bool:
    """True if a lost member may have caused the failure: its type says that, or neither type nor message is known.

    Exit code 1 is Python's after an uncaught error, so without a type it says nothing.
    """
    unknown = not failure.message or (not failure.errors and failure.exit_code == _UNCAUGHT)
    return doubt(failure.evidence) > 0 or (not failure.hang and unknown)


def first_failure(state: JobState, failures: Sequence[Failure]) -> FirstFailure:
    """Return what is shown of the failure that caused the others."""
    first, fault = _blamed(failures)
    failed = {failure.rank for failure in failures if not failure.early}
    later = failed.union(*(failure.also for failure in failures)) - {first.rank}
    return FirstFailure(
        FailureKind.ENDED_EARLY if first.early else FailureKind.HANGS if first.hang else FailureKind.EXITED,
        first.rank,
        state.pod_name(first.index),
        first.exit_code,
        "" if first.early else first.message,
        first.errors[0] if first.errors else "",
        reached_step(state),
        len(later),
        fault,
        first.places.get(str(first.rank)) or "",
    )


def reached_step(state: JobState) -> int | None:
    """Return the last step that a member of the round has reported."""
    if state.round is None:
        return None
    indices = state.round.members
    steps = (member.step for index, member in state.members.items() if index in indices)
    return max((step for step in steps if step is not None), default=None)


def judge(state: JobState, failures: Sequence[Failure], now: float) -> FailureVerdict:
    """Decide what follows from one failed round."""
    first, step = root_cause(failures), reached_step(state)
    shown = first_failure(state, failures)
    message = shown.sentence
    same = "; ".join(f"{rank} {at}" for rank, at in sorted(_places(failures).items())) if first.hang else ""
    text = f"hang {same}" if same else f"{first.exit_code} {_NUMBERS.sub('#', first.message)[:200]}"
    signature = past_failures.signature(text)
    reason = TrainingReason.WORKERS_HANG if first.hang else TrainingReason.WORKER_FAILED
    past = [known for known in state.history if known.counted]
    if _is_progress_unknown(state) and _reports_steps(state):
        step = _last_step(past) + 1  # counts as progress: the job must not end for what only a former leader saw
    restart = PastRestart(now, reason, message, True, signature, step, shown)
    no_progress = _made_no_progress(state, now)
    found = _find_end(state, [*past, restart], first, no_progress)
    if found is None:
        return FailureVerdict(None, restart, _pause(past, no_progress, now), message)
    end_reason, why = found
    return FailureVerdict(End(end_reason, f"{message}. {why}", first.exit_code or 1, now, shown), restart, 0.0, message)


def remember(history: tuple[PastRestart, ...], restart: PastRestart) -> tuple[PastRestart, ...]:
    """Return the history with one more restart."""
    return (*history, restart)[-_HISTORY:]


def _made_no_progress(state: JobState, now: float) -> bool:
    """True if the round did no step, as far as the coordinator knows."""
    round_ = state.round
    if round_ is None:
        return True
    if _is_progress_unknown(state):
        return False
    if _reports_steps(state):
        return round_.first_step is None
    return now - round_.started_at < SHORT_SECONDS


def _is_progress_unknown(state: JobState) -> bool:
    """True if the round ended under a former leader: members that wait report no steps."""
    return isinstance(state.phase, Rendezvous) and state.phase.workers is LastWorkers.STOPPED_LONG_AGO


def _reports_steps(state: JobState) -> bool:
    """True if the workers of this job report their steps."""
    reporting = any(member.step is not None for member in state.members.values())
    return reporting or any(restart.step is not None for restart in state.history)


def _find_end(
    state: JobState, failures: list[PastRestart], first: Failure, no_progress: bool
) -> tuple[EndReason, str] | None:
    """Return why the job ends with the last of these failures. None: it goes on."""
    policy = state.policy
    if 0 < first.exit_code < policy.first_retryable_exit_code:
        limit = policy.first_retryable_exit_code
        return EndReason.PERMANENT, f"Exit codes below {limit} are permanent (restartPolicy ExitCode)"
    early = no_progress and not first.hang
    if why := why_repeated(first.errors, first.exit_code, early=early):
        return EndReason.PERMANENT, why
    if policy.max_restarts is not None and _used_restarts(policy, state.restarts, failures) >= policy.max_restarts:
        return EndReason.BUDGET, _used_up(policy.max_restarts, policy.restart_window)
    blind = not _reports_steps(state)
    if first.hang and first.places and _same_hang(failures[-SAME_HANG:]):
        return EndReason.SAME_HANG, why_same_hang()
    limit = policy.early_errors if blind else SAME_ERROR
    row = failures[-limit:]
    same = len(row) == limit and len({failure.signature for failure in row}) == 1
    if no_progress and same and _all_without_steps(row, blind):
        return EndReason.SAME_ERROR, f"The same error occurred {limit} times in a row before the first step"
    if not blind and _stuck_at_step(failures):
        return EndReason.NO_PROGRESS, f"{NO_PROGRESS} restarts in a row did not get past step {_last_step(failures)}"
    return None


def _same_hang(row: list[PastRestart]) -> bool:
    """True if these hangs were at the same place, and no round between them got any further."""
    same = len(row) == SAME_HANG and len({failure.signature for failure in row}) == 1
    steps = [failure.step or 0 for failure in row]
    near = all(after.at - before.at < HANG_SECONDS for before, after in pairwise(row))
    return same and near and max(steps) <= steps[0]


def _used_restarts(policy: Policy, restarts: int, failures: list[PastRestart]) -> int:
    """Return the used restarts. The count survives a change of leaders, and so do the times of the last failures."""
    window = policy.restart_window
    if window is None:
        return restarts
    return sum(1 for failure in failures[:-1] if failures[-1].at - failure.at <= window)


def _used_up(restarts: int, window: float | None) -> str:
    within = f" within {window:g} s" if window is not None else ""
    if restarts == 0:
        return "The job has no restarts (maxRestarts is 0)"
    if restarts == 1:
        return f"The one restart{within} is used up"
    return f"All {restarts} restarts{within} are used up"


def _all_without_steps(row: list[PastRestart], blind: bool) -> bool:
    """True if none of these rounds did a step. `blind`: steps are not reported, so short rounds count."""
    if not blind:
        return all(failure.step is None for failure in row)
    return all(after.at - before.at < SHORT_SECONDS + LONGEST_PAUSE for before, after in pairwise(row))


def _last_step(failures: list[PastRestart]) -> int:
    return max((failure.step for failure in failures if failure.step is not None), default=0)


def _stuck_at_step(failures: list[PastRestart]) -> bool:
    if len(failures) <= NO_PROGRESS:
        return False
    before, row = failures[:-NO_PROGRESS], failures[-NO_PROGRESS:]
    return _last_step(row) <= _last_step(before) and any(failure.step is not None for failure in before)


def _pause(past: list[PastRestart], no_progress: bool, now: float) -> float:
    """Return the seconds until the next round: 0 after progress and after the first failure, then 1, 2, 4, ... 60."""
    if not no_progress:
        return 0.0
    quick, last = 0, now
    for restart in reversed(past):
        if last - restart.at > SHORT_SECONDS + LONGEST_PAUSE:
            break
        quick, last = quick + 1, restart.at
    return float(min(2 ** (quick - 1), LONGEST_PAUSE)) if quick else 0.0
