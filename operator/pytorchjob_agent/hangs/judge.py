"""Decides whether this pod's workers hang, or break a rule of the job's author: by steps, log lines, or idleness.

Pure: the evidence and the time come in, a verdict with its reason goes out. `watch` collects the evidence, and
`rendezvous/loop` acts on the verdict.

A limit that the author sets applies unchanged. The automatic limits must not end a job whose rank 0 evaluates or saves
for minutes while the other ranks wait. The short one applies to a process that cannot continue by itself (stopped by a
signal). A longer one applies to workers that do nothing and are blocked outside of any collective. Workers that compute
or wait for other ranks have only the limit of the first step: the rank at fault is elsewhere, and its agent sees it.

Without limits of the author's: if no rank of the whole job makes progress of any kind (`stillness`) for two minutes,
the job hangs, whether it reports steps or not. Idleness is another rule, which the author asks for (`idleSeconds`): the
workers of this pod alone use neither CPU nor network.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from pytorchjob_agent.contract.hang_rules import HangRules, LogRule
from pytorchjob_agent.hangs.log_tracker import LogEvidence
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace

SHORTEST = 3.0  # seconds: no automatic limit is below
QUIET = 60.0  # seconds: a shorter wait for data or a file is not a hang
STOPPED = 60.0  # seconds: a worker that was stopped on purpose is continued before
_BEYOND = 0.01  # seconds after a limit at which it counts as reached
_FACTOR = 5.0
_WARM = 10  # steps before the pace is known
_LAST = 200  # measurements from which the pace is computed


@dataclass(frozen=True, slots=True)
class StackRequest:
    """The decision needs the stacks of these workers; they are requested once per stall."""

    local_ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity of a worker and its descendants, from /proc."""

    quiet_for: float = 0.0  # seconds without noticeable CPU time, reading, writing or traffic
    stopped_for: float | None = None  # seconds since a signal stopped it; None: it is not stopped
    gone: bool = False
    traced: bool = False  # a debugger is attached


@dataclass(frozen=True, slots=True)
class WatchedWorker:
    """What is known of one worker; times in seconds, on the clock of `now`."""

    local_rank: int
    step: int | None = None
    total: int | None = None
    at: float | None = None  # time of its last report
    pace: float | None = None  # 99th percentile of its last step times; None: too few steps
    activity: Activity | None = None  # None: not measured
    asked: bool = False  # whether its stack was requested in this stall
    place: StackPlace | None = None


@dataclass(frozen=True, slots=True)
class RoundObservation:
    """What is known at one moment of one round."""

    started: float
    workers: tuple[WatchedWorker, ...] = ()
    logs: tuple[LogEvidence, ...] = ()
    has_rank_0: bool = True  # many scripts print nothing on other ranks, which is not a fault
    reports: bool = False  # the script is known to call progress(), from now or an earlier round
    idle_for: float = 0.0  # seconds during which no worker used CPU time or the network
    still_for: float = 0.0  # seconds without progress of any kind on all ranks of the job, as far as that is certain
    stopped: Mapping[int, float] = field(default_factory=dict)  # seconds since a signal stopped a local rank


@dataclass(slots=True)
class StepPace:
    """How long a worker's steps take: by the checks that saw a new step, or by the worker's own first and last report.

    A worker that stops in its first second was perhaps seen at a single step, but it reported all of them.
    """

    prior: float | None = None  # of the previous round in this pod
    steps: int = 0
    _reported: tuple[int, float] = (0, 0.0)  # steps and seconds since the worker's first report
    _last: tuple[int, float] | None = None
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST))

    def take(self, step: int, at: float, first: tuple[int, float] | None = None) -> None:
        """Record the newest step and its time, and those of the first report; several steps at once: their mean."""
        if first is not None:
            self._reported = (step - first[0], at - first[1])
        if self._last is None or step < self._last[0]:
            self._last = (step, at)
        elif step > self._last[0]:
            done = step - self._last[0]
            self._times.append((at - self._last[1]) / done)
            self.steps += done
            self._last = (step, at)

    @property
    def p99(self) -> float | None:
        """Return the 99th percentile of the last step times, in seconds; None if nothing is known of ten steps.

        Without enough checks it is the mean of all steps so far; without ten steps, the pace of the previous round.
        """
        if self.steps >= _WARM:
            times = sorted(self._times)
            return times[ceil(0.99 * len(times)) - 1]
        steps, seconds = self._reported
        return seconds / steps if steps >= _WARM else self.prior


def judge_workers(evidence: RoundObservation, rules: HangRules, now: float) -> HangVerdict | StackRequest | None:
    """Return what is wrong, or which stacks the decision needs; None if nothing is wrong."""
    for log in evidence.logs:
        verdict = _by_log(log, evidence, now)
        if verdict is not None:
            return verdict
    found = _by_steps(evidence, rules, now)
    return found if isinstance(found, HangVerdict) else _by_stillness(evidence, rules) or found


def _by_steps(evidence: RoundObservation, rules: HangRules, now: float) -> HangVerdict | StackRequest | None:
    alive = [worker for worker in evidence.workers if worker.activity is None or not worker.activity.gone]
    if not any(worker.at is not None for worker in evidence.workers):
        return _by_first_step(alive, evidence, rules, now) or _by_idleness(evidence, rules)
    found = [finding for finding in _stalls(alive, rules, now) if finding is not None]
    return next((finding for finding in found if isinstance(finding, HangVerdict)), None) or _stacks_needed(found)


def attention_after(worker: WatchedWorker, rules: HangRules) -> float:
    """Return after how many seconds without a report a worker's activity is measured: before it reaches a limit."""
    limits = [limit for limit in (*_own(worker, rules), rules.first_limit) if limit]
    return min(limits, default=float("inf")) / 2


def next_limit(ages: Iterable[float], rules: HangRules, now: float) -> float:
    """Return when the first worker reaches the author's limit for steps: the check comes at that moment.

    `ages`: seconds since the workers' last reports.
    """
    limit = rules.progress_seconds or 0.0
    times = (now - age + limit + _BEYOND for age in ages)
    return min((time for time in times if limit and time > now), default=float("inf"))


def _own(worker: WatchedWorker, rules: HangRules) -> tuple[float, ...]:
    if rules.progress_seconds is not None:
        return (rules.progress_seconds,)
    return () if worker.pace is None else (_quick(worker.pace),)


def _quick(pace: float) -> float:
    return max(SHORTEST, _FACTOR * pace)


def _stacks_needed(found: Iterable[HangVerdict | StackRequest]) -> StackRequest | None:
    requests = [finding for finding in found if isinstance(finding, StackRequest)]
    if not requests:
        return None
    return StackRequest(tuple(rank for request in requests for rank in request.local_ranks), requests[0].reason)


def _by_log(log: LogEvidence, evidence: RoundObservation, now: float) -> HangVerdict | None:
    rule, name = log.rule, f"log rule {log.rule.name!r}"
    if log.fault:
        return HangVerdict(f"{name} found: {log.line}")
    if log.over:
        return None
    if rule.operator is not None and log.bad >= rule.points:
        times = f"{log.bad} times in a row" if log.bad > 1 else "once"
        return HangVerdict(f"{name}: {rule.operator} {rule.value:g} {times}, at last: {log.line}")
    return _by_absence(rule, name, log, evidence, now)


def _by_absence(
    rule: LogRule, name: str, log: LogEvidence, evidence: RoundObservation, now: float
) -> HangVerdict | None:
    late, again = rule.start_seconds, rule.every_seconds
    if log.last is None:
        if late and evidence.has_rank_0 and now - evidence.started > late:
            words = f"{name}: no line matched within {late:g} s of the start"
            return HangVerdict(words, idle=now - evidence.started)
    elif again and now - log.last > again:
        words = f"{name}: no line matched for {now - log.last:.0f} s (limit {again:g} s)"
        return HangVerdict(words, idle=now - log.last)
    return None


def _by_first_step(
    alive: list[WatchedWorker], evidence: RoundObservation, rules: HangRules, now: float
) -> HangVerdict | None:
    """Judge workers that never reported; by default only if the script reported in an earlier round.

    Many scripts report on rank 0 only, and a rank that is stuck at the start also blocks rank 0.
    """
    limit = rules.first_limit
    known = evidence.has_rank_0 and (evidence.reports or rules.first_progress_seconds is not None)
    if not alive or not known or not limit or now - evidence.started <= limit:
        return None
    ranks = tuple(worker.local_rank for worker in alive)
    return HangVerdict(f"no first step within {limit:g} s", ranks, now - evidence.started)


def _by_idleness(evidence: RoundObservation, rules: HangRules) -> HangVerdict | None:
    """Judge workers without any report: neither steps, nor lines at times that a rule limits."""
    limit = rules.idle_seconds
    if not limit or evidence.reports or rules.limits_silence or evidence.idle_for <= limit:
        return None
    words = f"no CPU time and no network traffic for {evidence.idle_for:.0f} s (limit {limit:g} s)"
    return HangVerdict(words, idle=evidence.idle_for)


def _by_stillness(evidence: RoundObservation, rules: HangRules) -> HangVerdict | None:
    """Judge workers without limits of the author's: nothing moves in the whole job, or a worker cannot continue."""
    limit = rules.still_limit
    if not limit or rules.limits_silence or _author_limits(evidence, rules):
        return None
    most = STOPPED if rules.idle_seconds is None else limit
    stopped = {rank: seconds for rank, seconds in evidence.stopped.items() if seconds > most}
    if stopped:
        rank, seconds = max(stopped.items(), key=lambda item: item[1])
        words = f"local rank {rank}: stopped by a signal (SIGSTOP) for {seconds:.0f} s (limit {most:.0f} s)"
        return HangVerdict(words, tuple(sorted(stopped)), seconds, stopped=True)
    if not limit < evidence.still_for < float("inf"):
        return None
    words = f"no rank has made progress of any kind for {evidence.still_for:.0f} s (limit {limit:.0f} s)"
    return HangVerdict(words, idle=evidence.still_for)


def _author_limits(evidence: RoundObservation, rules: HangRules) -> bool:
    """Return whether a limit for steps that the author set applies now: it replaces the automatic ones."""
    if any(worker.at is not None for worker in evidence.workers):
        return rules.progress_seconds is not None
    return rules.first_progress_seconds is not None


def _stalls(
    workers: Iterable[WatchedWorker], rules: HangRules, now: float
) -> Iterator[HangVerdict | StackRequest | None]:
    for worker in workers:
        if worker.at is None or worker.activity is None:
            continue  # it never reported while others did; or its activity follows with the next check
        silent = now - worker.at
        if rules.progress_seconds is None:
            yield _by_pace(worker, worker.activity, rules, silent)
        else:
            yield _by_limit(worker, rules, silent)


def _finished(worker: WatchedWorker) -> bool:
    """Return whether its last step is done: it may still evaluate and save, but has no step to report."""
    return worker.total is not None and (worker.step or 0) >= worker.total


def _by_limit(worker: WatchedWorker, rules: HangRules, silent: float) -> HangVerdict | None:
    limit = rules.progress_seconds or 0.0
    if _finished(worker):
        limit = max(limit, rules.first_limit) if rules.first_limit else 0.0
    return _stuck(worker, silent, limit) if limit and silent > limit else None


def _by_pace(
    worker: WatchedWorker, activity: Activity, rules: HangRules, silent: float
) -> HangVerdict | StackRequest | None:
    if activity.traced:
        return None
    long = rules.first_limit
    if long and silent > long:
        return _stuck(worker, silent, long)
    if worker.pace is None or _finished(worker) or silent <= _quick(worker.pace):
        return None
    quick = _quick(worker.pace)
    if activity.stopped_for is not None:
        return replace(_stuck(worker, silent, quick, ": it is stopped (SIGSTOP)"), stopped=True)
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
    stopped_for = worker.activity.stopped_for if worker.activity is not None else None
    return HangVerdict(words, (worker.local_rank,), silent, stopped=(stopped_for or 0.0) > silent / 2)
