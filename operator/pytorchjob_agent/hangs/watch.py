"""Collects the evidence about one round's workers: their progress, their lines, and their activity (`meter`).

`judge.judge_workers` decides what it means. A check takes microseconds as long as all workers report.
"""

import time
from dataclasses import dataclass, replace

from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.hangs import judge, standing
from pytorchjob_agent.hangs.judge import Activity, RoundObservation, StackRequest, StepPace, WatchedWorker
from pytorchjob_agent.hangs.log_tracker import LONGEST_LINE, RuleTracker
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.rendezvous.agreement import MemberStanding
from pytorchjob_agent.rendezvous.extension import Share
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress
from pytorchjob_agent.stacks.stack_analysis import StackPlace

_EVERY = 1.0  # seconds between two checks
_LEAST = 0.02  # seconds between two checks, however many limits are reached
_CALM = 4.0  # the same if no limit can be reached in between
_YOUNG = 30.0  # seconds: in a younger round each step counts, because it may fail before its first one
_ANSWER = 0.5  # seconds in which a worker has to write its stack


@dataclass(frozen=True, slots=True)
class History:
    """What earlier rounds in this pod have shown of the script."""

    reports: bool = False  # it calls progress()
    pace: float | None = None  # see Pace.p99, of the slowest worker


_UNKNOWN = History()


@dataclass(slots=True)
class _Stall:
    """What is known about a silent worker, until its next report."""

    activity: Activity
    asked: bool = False
    place: StackPlace | None = None


class HangWatch:
    """One round of workers."""

    def __init__(self, rules: HangRules, files: ProgressFiles, meter: WorkerMeter, history: History = _UNKNOWN) -> None:
        """Start to watch the workers of `meter`; `history` has what earlier rounds have shown."""
        self._rules = rules
        self._files = files
        self._meter = meter
        self._trackers = [RuleTracker(rule) for rule in rules.log_rules]
        self._paces = {local_rank: StepPace(history.pace) for local_rank in meter.pids}
        self._stalls: dict[int, _Stall] = {}
        self._started = self._next = time.monotonic()
        self._due = float("inf")
        """When the first worker reaches a limit of the author's."""
        self._alert = 0.0
        """The time at which the first worker will have been silent for long enough to be measured."""
        self._verdict: HangVerdict | None = None
        self.has_rank_0 = True
        self.reports = history.reports
        self.progress: tuple[WorkerProgress, ...] = ()
        self.share: Share = lambda _: ()
        """See RunningWorkers.share."""

    @property
    def started(self) -> float:
        """When the round began: the value of time.monotonic()."""
        return self._started

    @property
    def history(self) -> History:
        """Return what the next round may know."""
        paces = [pace.p99 for pace in self._paces.values() if pace.p99 is not None]
        return History(self.reports, max(paces, default=None))

    @property
    def reads_lines(self) -> bool:
        """Return whether `add_line` has to be called: only if the job has log rules."""
        return bool(self._trackers)

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Match one line that a worker printed; the thread that reads the output calls it."""
        now, text = time.monotonic(), line[:LONGEST_LINE].decode(errors="replace")
        for tracker in self._trackers:
            tracker.take(local_rank, text, now)

    def check(self, now: float) -> HangVerdict | None:
        """Return what is wrong; the first verdict is final. `now` is the value of time.monotonic()."""
        if self._verdict is not None or now < self._next:
            return self._verdict
        self._next = now + _EVERY
        self.progress = self._files.read(now)
        self.reports = self.reports or any(worker.reports for worker in self.progress)
        verdict = judge.judge_workers(self._evidence(now), self._rules, now)
        if isinstance(verdict, StackRequest):
            self._ask(verdict, now)
        else:
            self._verdict = verdict
        ages = (worker.age for worker in self.progress if worker.age is not None)
        self._due = judge.next_limit(ages, self._rules, now)
        self._next = min(self._next, self._due)
        return self._verdict

    def pause(self, now: float) -> float:
        """Return in how many seconds the next check is due."""
        watched = self._trackers or self._rules.idle_seconds or self._stalls
        calm = not watched and now - self._started > _YOUNG and now + _CALM < self._alert
        until = self._due - now if self._due > now else _EVERY
        return max(min(_CALM if calm else _EVERY, until), _LEAST)

    def _evidence(self, now: float) -> RoundObservation:
        self._alert = float("inf")
        self._measure(now)
        workers = tuple(self._worker(reported, now) for reported in self.progress if reported.local_rank in self._paces)
        return RoundObservation(
            started=self._started,
            workers=workers,
            logs=tuple(tracker.seen() for tracker in self._trackers),
            has_rank_0=self.has_rank_0,
            reports=self.reports,
            idle_for=self._meter.idle_for(now),
            still_for=self._still_for(now),
            stopped=self._meter.stopped(now),
        )

    def _still_for(self, now: float) -> float:
        """Tell the other members what is known of the ranks here; return for how long the whole job has been still."""
        ranks = self._meter.standings(now)
        still = min((rank.still for rank in ranks), default=0.0)
        told = standing.note(ranks) if any(rank.begun for rank in ranks) else ""
        return standing.job_still_for(ranks, self.share(MemberStanding(still, told)))

    def _measure(self, now: float) -> None:
        """Read /proc if a rule needs it: the one for idleness unless it is off, or that of a silent worker."""
        if self._stalls:
            self._meter.measure(now, _EVERY)
        elif not self._trackers and self._rules.still_limit:
            self._meter.measure(now)

    def _worker(self, reported: WorkerProgress, now: float) -> WatchedWorker:
        at = None if reported.age is None else now - reported.age
        pace = self._paces[reported.local_rank]
        if at is not None and reported.step is not None:
            pace.take(reported.step, at, _first(reported, now))
        worker = WatchedWorker(reported.local_rank, reported.step, reported.total, at, pace.p99)
        alert = float("inf") if at is None else at + judge.attention_after(worker, self._rules)
        if now < alert:
            self._alert = min(self._alert, self._check_by(alert, at))
            self._stalls.pop(reported.local_rank, None)
            return worker
        stall = self._stall(reported.local_rank, now)
        return replace(worker, activity=stall.activity, asked=stall.asked, place=stall.place)

    def _check_by(self, alert: float, at: float | None) -> float:
        """Return the time of the next check of a worker that reports: the automatic limits cost no more checks."""
        if at is None or self._rules.progress_seconds is not None:
            return alert
        return max(alert, at + _CALM + _EVERY)

    def _stall(self, local_rank: int, now: float) -> _Stall:
        """Return what is known of a silent worker, with the stack that was requested from it."""
        activity = self._meter.activity(local_rank, now)
        stall = self._stalls.setdefault(local_rank, _Stall(activity))
        stall.activity = activity
        if stall.asked and stall.place is None:
            stall.place = self._meter.place(local_rank)
        return stall

    def _ask(self, request: StackRequest, now: float) -> None:
        """Request the stacks that a decision needs; the next check reads them."""
        for local_rank in request.local_ranks:
            self._stalls[local_rank].asked = True
        self._meter.ask(*request.local_ranks)
        self._next = now + _ANSWER


def _first(reported: WorkerProgress, now: float) -> tuple[int, float] | None:
    """Return the step and the time of a worker's first report in this round."""
    if reported.first_step is None or reported.first_age is None:
        return None
    return reported.first_step, now - reported.first_age
