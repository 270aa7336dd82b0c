"""Decides whether this pod's workers are stuck, or doing what its author does not want: by steps, lines, or idleness.

Pure: what is known at one moment and the time come in, a verdict with its reason goes out. It kills nobody.

A limit that the author sets holds as it is. The automatic one must not end a job whose rank 0 evaluates or saves for
minutes while the others wait for it: its short limit counts for what cannot go on by itself (a stopped process), a
longer one for workers that do nothing at all and are blocked outside of any collective; for those who work or wait for
others there is only the limit of the first step. The one at fault is elsewhere then, and its agent sees it.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil

from pytorchjob_agent.contract.hang_rules import HangRules, LogRule
from pytorchjob_agent.hangs.log_tracker import LogEvidence
from pytorchjob_agent.hangs.stack_analysis import Place

SHORTEST = 10.0  # seconds: no automatic limit is below
QUIET = 60.0  # seconds: waiting for data or a file for shorter than this is no hang
_FACTOR = 5.0
_WARM = 10  # steps, before the pace is known
_LAST = 200  # pieces of work that the pace is made of


class HangKind(StrEnum):
    """What is wrong."""

    HANGING = "Hanging"
    SLOW = "Slow"
    FAULTED = "Faulted"


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """The workers are to be started again, and why."""

    kind: HangKind
    reason: str
    local_ranks: tuple[int, ...] = ()  # those whose fault it may be; empty: not known


@dataclass(frozen=True, slots=True)
class StackRequest:
    """The stacks of these workers would tell; they are asked for once in a stall."""

    local_ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Activity:
    """What /proc tells of a worker and all below it."""

    quiet_for: float = 0.0  # seconds without CPU time, reading, writing or traffic worth mentioning
    stopped: bool = False  # by SIGSTOP, or a debugger
    gone: bool = False


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """What is known of one worker; times in seconds, on the clock of `now`."""

    local_rank: int
    step: int | None = None
    total: int | None = None
    at: float | None = None  # of its last word
    pace: float | None = None  # what the slowest 1 % of its last steps took; None: too early to say
    activity: Activity | None = None  # None: not looked at
    asked: bool = False  # for its stack, in this stall
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known at one moment of one round."""

    started: float
    workers: tuple[WatchedWorker, ...] = ()
    logs: tuple[LogEvidence, ...] = ()
    leads: bool = True  # rank 0 is here: elsewhere many scripts print nothing, and that is no fault
    reports: bool = False  # the script is known to call progress(), from now or an earlier round
    idle_for: float = 0.0  # seconds without CPU time and network traffic of all workers


@dataclass(slots=True)
class Pace:
    """How long a worker's steps take."""

    steps: int = 0
    _last: tuple[int, float] | None = None
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST))

    def take(self, step: int, at: float) -> None:
        """Take its newest step and when it was done; of several at once the mean."""
        if self._last is None or step < self._last[0]:
            self._last = (step, at)
        elif step > self._last[0]:
            done = step - self._last[0]
            self._times.append((at - self._last[1]) / done)
            self.steps += done
            self._last = (step, at)

    @property
    def p99(self) -> float | None:
        """Return what 99 % of the last steps did not exceed, in seconds; None before there are enough."""
        if self.steps < _WARM:
            return None
        times = sorted(self._times)
        return times[ceil(0.99 * len(times)) - 1]


def judge_workers(seen: Evidence, rules: HangRules, now: float) -> HangVerdict | StackRequest | None:
    """Return what is wrong, or whose stacks would tell, or None while nothing is."""
    for log in seen.logs:
        verdict = _by_log(log, seen, now)
        if verdict is not None:
            return verdict
    alive = [one for one in seen.workers if one.activity is None or not one.activity.gone]
    if not any(one.at is not None for one in seen.workers):
        return _by_first_step(alive, seen, rules, now) or _by_idleness(seen, rules)
    found = [one for one in _stalls(alive, rules, now) if one is not None]
    return next((one for one in found if isinstance(one, HangVerdict)), None) or _looks(found)


def attention_after(worker: WatchedWorker, rules: HangRules) -> float:
    """Return after how many seconds of silence of a worker its pulse is wanted: before any limit is reached."""
    limits = [limit for limit in (*_own(worker, rules), rules.first_limit) if limit]
    return min(limits, default=float("inf")) / 2


def _own(worker: WatchedWorker, rules: HangRules) -> tuple[float, ...]:
    if rules.progress_seconds is not None:
        return (rules.progress_seconds,)
    return () if worker.pace is None else (_quick(worker.pace),)


def _quick(pace: float) -> float:
    return max(SHORTEST, _FACTOR * pace)


def _looks(found: Iterable[HangVerdict | StackRequest]) -> StackRequest | None:
    looks = [one for one in found if isinstance(one, StackRequest)]
    return StackRequest(tuple(rank for one in looks for rank in one.local_ranks), looks[0].reason) if looks else None


def _by_log(log: LogEvidence, seen: Evidence, now: float) -> HangVerdict | None:
    rule, name = log.rule, f"log rule {log.rule.name!r}"
    if log.fault:
        return HangVerdict(HangKind.FAULTED, f"{name} found: {log.line}")
    if log.over:
        return None
    if rule.operator is not None and log.bad >= rule.points:
        times = f"{log.bad} times in a row" if log.bad > 1 else "once"
        return HangVerdict(HangKind.SLOW, f"{name}: {rule.operator} {rule.value:g} {times}, at last: {log.line}")
    return _by_absence(rule, name, log, seen, now)


def _by_absence(rule: LogRule, name: str, log: LogEvidence, seen: Evidence, now: float) -> HangVerdict | None:
    late, again = rule.start_seconds, rule.every_seconds
    if log.last is None:
        if late and seen.leads and now - seen.started > late:
            return HangVerdict(HangKind.HANGING, f"{name}: no line matched within {late:g} s of the start")
    elif again and now - log.last > again:
        return HangVerdict(HangKind.HANGING, f"{name}: no line matched for {now - log.last:.0f} s (limit {again:g} s)")
    return None


def _by_first_step(alive: list[WatchedWorker], seen: Evidence, rules: HangRules, now: float) -> HangVerdict | None:
    """Judge workers that never reported: by default only if the script did so in an earlier round.

    Many scripts report on rank 0 alone, and a rank that is stuck at the start holds up rank 0 too.
    """
    limit = rules.first_limit
    known = seen.leads and (seen.reports or rules.first_progress_seconds is not None)
    if not alive or not known or not limit or now - seen.started <= limit:
        return None
    return HangVerdict(HangKind.HANGING, f"no first step within {limit:g} s", tuple(one.local_rank for one in alive))


def _by_idleness(seen: Evidence, rules: HangRules) -> HangVerdict | None:
    """Judge what says nothing at all: neither by steps, nor by lines that somebody waits for."""
    limit = rules.idle_seconds
    if not limit or seen.reports or rules.log_rules or seen.idle_for <= limit:
        return None
    return HangVerdict(
        HangKind.HANGING, f"no CPU time and no network traffic for {seen.idle_for:.0f} s (limit {limit:g} s)"
    )


def _stalls(
    workers: Iterable[WatchedWorker], rules: HangRules, now: float
) -> Iterator[HangVerdict | StackRequest | None]:
    for one in workers:
        if one.at is None or one.activity is None:
            continue  # it never reported while others did; or its pulse comes with the next look
        silent = now - one.at
        if rules.progress_seconds is None:
            yield _by_pace(one, one.activity, rules, silent)
        else:
            yield _by_limit(one, rules, silent)


def _finished(worker: WatchedWorker) -> bool:
    """Whether its last step is done: then it evaluates, saves, and has none to report."""
    return worker.total is not None and (worker.step or 0) >= worker.total


def _by_limit(worker: WatchedWorker, rules: HangRules, silent: float) -> HangVerdict | None:
    limit = rules.progress_seconds or 0.0
    if _finished(worker):
        limit = max(limit, rules.first_limit) if rules.first_limit else 0.0
    return _stuck(worker, silent, limit) if limit and silent > limit else None


def _by_pace(
    worker: WatchedWorker, activity: Activity, rules: HangRules, silent: float
) -> HangVerdict | StackRequest | None:
    long = rules.first_limit
    if long and silent > long:
        return _stuck(worker, silent, long)
    if worker.pace is None or _finished(worker) or silent <= _quick(worker.pace):
        return None
    quick = _quick(worker.pace)
    if activity.stopped:
        return _stuck(worker, silent, quick, ": it is stopped (SIGSTOP)")
    quiet = max(QUIET, quick)
    if silent <= quiet or activity.quiet_for < quiet / 2:
        return None
    if not worker.asked:
        return StackRequest((worker.local_rank,), f"local rank {worker.local_rank} has done nothing for {silent:.0f} s")
    if worker.place is None or worker.place.collective or not worker.place.blocked:
        return None
    return _stuck(worker, silent, quiet, f" and does nothing: it {worker.place.words}")


def _stuck(worker: WatchedWorker, silent: float, limit: float, more: str = "") -> HangVerdict:
    after = "no step" if worker.step is None else f"no step after {worker.step}"
    words = f"local rank {worker.local_rank}: {after} for {silent:.0f} s (limit {limit:.0f} s){more}"
    return HangVerdict(HangKind.HANGING, words, (worker.local_rank,))
