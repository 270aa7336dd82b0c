"""Collects the evidence about one round's workers: their progress, their lines and, of a silent one, its activity.

`judge.judge_workers` decides what it means. A check takes microseconds as long as all workers report.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytorchjob_agent.contract.hang_rules import HangRules
from pytorchjob_agent.hangs import judge
from pytorchjob_agent.hangs.activity import ActivityMeter
from pytorchjob_agent.hangs.judge import Activity, Evidence, HangVerdict, Pace, StackRequest, WatchedWorker
from pytorchjob_agent.hangs.log_tracker import LONGEST_LINE, RuleTracker
from pytorchjob_agent.hangs.stack_analysis import Place, place
from pytorchjob_agent.hangs.stack_dump import StackDumps
from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress

_EVERY = 1.0  # seconds between two checks
_CALM = 4.0  # the same if no limit can be reached in between
_YOUNG = 30.0  # seconds: in a younger round each step counts, because it may fail before its first one
_ANSWER = 0.5  # seconds in which a worker has to write its stack
_PARTS = 20  # measurements within the limit for idleness


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
    place: Place | None = None


class Watch:
    """One round of workers."""

    def __init__(
        self,
        rules: HangRules,
        files: ProgressFiles,
        pids: Mapping[int, int],
        stacks: StackDumps | None = None,
        history: History = _UNKNOWN,
    ) -> None:
        """Start to watch; `pids` has the workers by local rank, `stacks` the files for their stacks."""
        self._rules = rules
        self._files = files
        self._pids = dict(pids)
        self._stacks = stacks
        self._trackers = [RuleTracker(rule) for rule in rules.log_rules]
        self._meter = ActivityMeter(self._pids)
        self._paces = {local_rank: Pace(history.pace) for local_rank in self._pids}
        self._stalls: dict[int, _Stall] = {}
        self._started = self._next = self._next_idle = time.monotonic()
        self._alert = 0.0
        """The time at which the first worker will have been silent for long enough to be measured."""
        self._idle = 0.0
        self._verdict: HangVerdict | None = None
        self.has_rank_0 = True
        self.reports = history.reports
        self.progress: tuple[WorkerProgress, ...] = ()

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
        return self._verdict

    def pause(self, now: float) -> float:
        """Return in how many seconds the next check is due."""
        watched = self._trackers or self._rules.idle_seconds or self._stalls
        calm = not watched and now - self._started > _YOUNG and now + _CALM < self._alert
        return _CALM if calm else _EVERY

    def _evidence(self, now: float) -> Evidence:
        self._alert = float("inf")
        workers = tuple(self._worker(reported, now) for reported in self.progress if reported.local_rank in self._pids)
        logs = tuple(tracker.seen() for tracker in self._trackers)
        return Evidence(self._started, workers, logs, self.has_rank_0, self.reports, self._idle_for(now))

    def _worker(self, reported: WorkerProgress, now: float) -> WatchedWorker:
        at = None if reported.age is None else now - reported.age
        pace = self._paces[reported.local_rank]
        if at is not None and reported.step is not None:
            pace.take(reported.step, at, _first(reported, now))
        worker = WatchedWorker(reported.local_rank, reported.step, reported.total, at, pace.p99)
        alert = float("inf") if at is None else at + judge.attention_after(worker, self._rules)
        if now < alert:
            self._alert = min(self._alert, alert)
            if self._stalls.pop(reported.local_rank, None) is not None:
                self._meter.forget(reported.local_rank)
            return worker
        stall = self._stall(reported.local_rank, now)
        return replace(worker, activity=stall.activity, asked=stall.asked, place=stall.place)

    def _stall(self, local_rank: int, now: float) -> _Stall:
        """Measure a silent worker, and read the stack that was requested from it."""
        activity = self._meter.take(local_rank, now)
        stall = self._stalls.setdefault(local_rank, _Stall(activity))
        stall.activity = activity
        if stall.asked and stall.place is None and self._stacks is not None:
            stall.place = place(self._stacks.read().get(local_rank))
        return stall

    def _ask(self, request: StackRequest, now: float) -> None:
        """Request the stacks that a decision needs; the next check reads them."""
        for local_rank in request.local_ranks:
            self._stalls[local_rank].asked = True
        if self._stacks is not None:
            self._stacks.ask({local_rank: self._pids[local_rank] for local_rank in request.local_ranks})
        self._next = now + _ANSWER

    def _idle_for(self, now: float) -> float:
        """Return for how many seconds all workers were idle, if there is a rule for it and no better evidence."""
        limit = self._rules.idle_seconds
        if not limit or self.reports or self._trackers:
            return 0.0
        if now >= self._next_idle:
            self._next_idle = now + max(_EVERY, limit / _PARTS)
            measured = [self._meter.take(local_rank, now) for local_rank in self._pids]
            self._idle = min((activity.quiet_for for activity in measured if not activity.gone), default=0.0)
        return self._idle


def _first(reported: WorkerProgress, now: float) -> tuple[int, float] | None:
    """Return the step and the time of a worker's first report in this round."""
    if reported.first_step is None or reported.first_age is None:
        return None
    return reported.first_step, now - reported.first_age
