"""After workers have failed: are they started again, how soon, or does the job end, and why.

What counts are failures, never changes of members. Who failed first is the cause; what fell after it is named as such.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytorchjob_agent.contract.messages import CAUSE_UNKNOWN
from pytorchjob_operator.rounds.state import End, EndReason, Failure, JobState, PastRestart, Word

SAME_ERROR = 3
"""The same error so many times in a row, each before any step, ends the job."""
SAME_ERROR_BLIND = 5
"""The same for workers that report no steps: a round that lived so short is taken for one without."""
NO_PROGRESS = 3
"""So many failures in a row that get no further than the ones before end the job."""
SHORT_SECONDS = 20.0
"""A round that fails sooner, and reports no step, has got nowhere."""
LONGEST_PAUSE = 60.0
_KEPT = 200
"""Restarts that are remembered."""
_FOLLOWED = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket|peer|timed? ?out|nccl|gloo|distbackend|store", re.IGNORECASE
)
"""How an error sounds that another one has caused."""
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the job."""

    end: End | None
    restart: PastRestart
    pause: float
    """Seconds until the next round may begin."""
    words: str
    """The failure in one sentence."""


def root(failures: Sequence[Failure]) -> Failure:
    """Return the cause: one that does not look like the echo of another, and of those the earliest."""
    return min(failures, key=lambda one: (_doubt(one), one.at, one.rank))


def may_follow(failure: Failure) -> bool:
    """Whether it may be the echo of a lost member: it sounds like one, or says nothing."""
    return _doubt(failure) > 0 or (not failure.hang and failure.message in ("", CAUSE_UNKNOWN))


def _doubt(failure: Failure) -> int:
    if failure.hang:
        return 2 if failure.waits else 0
    sounds = _FOLLOWED.search(failure.message) or failure.exit_code == 134  # torch aborts for a lost peer
    return 1 if sounds else 0


def describe(state: JobState, failures: Sequence[Failure]) -> str:
    """Return one sentence: which rank, on which pod, with what, at which step, and who fell after it."""
    first = root(failures)
    member = state.members.get(first.index)
    pod = member.pod if member else f"replica {first.index}"
    step = reached(state)
    after = sorted({rank for one in failures for rank in (one.rank, *one.also)} - {first.rank})
    where = f" at step {step}" if step is not None else ""
    what = "wait for it" if first.hang else "failed after it"
    fell = f"; {len(after)} other ranks {what}" if after else ""
    how = "hangs" if first.hang else f"exited with {first.exit_code}"
    return f"rank {first.rank} ({pod}) {how}{where}: {first.message or 'no message'}{fell}"


def reached(state: JobState) -> int | None:
    """Return the furthest step that the members of the round tell."""
    if state.round is None:
        return None
    ranks = {index for index in state.round.ranks if index is not None}
    return max((m.step for i, m in state.members.items() if i in ranks and m.step is not None), default=None)


def judge(state: JobState, failures: Sequence[Failure], now: float) -> Verdict:
    """Decide about one failed round."""
    first, step = root(failures), reached(state)
    words = describe(state, failures)
    signature = f"{first.exit_code} {_NUMBERS.sub('#', first.message)[:200]}"
    this = PastRestart(now, Word.HANG if first.hang else Word.FAILED, words, True, signature, step)
    past = [one for one in state.history if one.counted]
    nowhere = _got_nowhere(state, now)
    found = _ended(state, [*past, this], first, nowhere)
    if found is None:
        return Verdict(None, this, _pause(past, nowhere, now), words)
    reason, why = found
    return Verdict(End(reason, f"{words}. {why}", first.exit_code or 1, now), this, 0.0, words)


def remember(history: tuple[PastRestart, ...], restart: PastRestart) -> tuple[PastRestart, ...]:
    """Return the history with one more."""
    return (*history, restart)[-_KEPT:]


def _got_nowhere(state: JobState, now: float) -> bool:
    """Whether the round has done no step, as far as one can tell."""
    round_ = state.round
    if round_ is None:
        return True
    if _tells_steps(state):
        return round_.first_step is None
    return now - round_.since < SHORT_SECONDS


def _tells_steps(state: JobState) -> bool:
    """Whether the workers of this job report their steps."""
    told = any(member.step is not None for member in state.members.values())
    return told or any(one.step is not None for one in state.history)


def _ended(state: JobState, failures: list[PastRestart], first: Failure, nowhere: bool) -> tuple[EndReason, str] | None:
    policy, this = state.policy, failures[-1]
    if 0 < first.exit_code < policy.retry_from:
        return EndReason.PERMANENT, f"Exit codes below {policy.retry_from} are not tried again (restartPolicy ExitCode)"
    counted = [one for one in failures[:-1] if policy.window is not None and this.at - one.at <= policy.window]
    used = state.restarts if policy.window is None else len(counted)  # the count outlives a leader, the times do not
    if policy.restarts is not None and used >= policy.restarts:
        return EndReason.BUDGET, _used_up(policy.restarts, policy.window)
    blind = not _tells_steps(state)
    limit = SAME_ERROR_BLIND if blind else SAME_ERROR
    row = failures[-limit:]
    if nowhere and len(row) == limit and len({one.signature for one in row}) == 1 and _stuck(row, blind):
        return EndReason.SAME_ERROR, f"The same error came {limit} times in a row before the first step"
    if not blind and _no_progress(failures):
        return EndReason.NO_PROGRESS, f"{NO_PROGRESS} restarts in a row got no further than step {_furthest(failures)}"
    return None


def _used_up(restarts: int, window: float | None) -> str:
    within = f" within {window:g} s" if window is not None else ""
    match restarts:
        case 0:
            return "The job has no restarts (maxRestarts is 0)"
        case 1:
            return f"The one restart{within} is used up"
    return f"All {restarts} restarts{within} are used up"


def _stuck(row: list[PastRestart], blind: bool) -> bool:
    """Whether none of these rounds did a step; where steps are not reported, by their short lives."""
    if not blind:
        return all(one.step is None for one in row)
    return all(after.at - before.at < SHORT_SECONDS + LONGEST_PAUSE for before, after in pairwise(row))


def _furthest(failures: list[PastRestart]) -> int:
    return max((one.step for one in failures if one.step is not None), default=0)


def _no_progress(failures: list[PastRestart]) -> bool:
    if len(failures) <= NO_PROGRESS:
        return False
    before, row = failures[:-NO_PROGRESS], failures[-NO_PROGRESS:]
    return _furthest(row) <= _furthest(before) and any(one.step is not None for one in before)


def _pause(past: list[PastRestart], nowhere: bool, now: float) -> float:
    """Seconds to wait: nothing after a round that has done something, then 1, 2, 4, ... as long as nothing is done."""
    if not nowhere:
        return 0.0
    quick, last = 0, now
    for one in reversed(past):
        if last - one.at > SHORT_SECONDS + LONGEST_PAUSE:
            break
        quick, last = quick + 1, one.at
    return float(min(2 ** (quick - 1), LONGEST_PAUSE)) if quick else 0.0
