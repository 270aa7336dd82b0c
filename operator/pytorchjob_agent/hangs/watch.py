"""Watches one round's workers for the agent: their boards, their lines, and, once one is silent, what /proc says.

The judgement is `hang.decide`'s. A look costs microseconds while all is well.
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

_EVERY = 1.0  # seconds between two looks at anything
_CALM = 4.0  # the same where nothing can become true in between
_YOUNG = 30.0  # age of a round in seconds below which it may fail before it has done anything: each step is news
_ANSWER = 0.5  # seconds that a worker gets for its stack
_PARTS = 20  # looks at /proc within the limit for idleness


@dataclass(slots=True)
class _Stall:
    """What is known of a worker that is silent, until it is heard of again."""

    activity: Activity
    asked: bool = False
    place: Place | None = None


class Watch:
    """One round of workers."""

    def __init__(
        self, rules: HangRules, boards: ProgressFiles, pids: Mapping[int, int], stacks: StackDumps | None = None
    ) -> None:
        """Begin; `pids` are those of the workers by local rank, `stacks` where they write when they are asked."""
        self._rules = rules
        self._boards = boards
        self._pids = dict(pids)
        self._stacks = stacks
        self._trackers = [RuleTracker(rule) for rule in rules.log_rules]
        self._pulses = ActivityMeter(self._pids)
        self._paces = {local_rank: Pace() for local_rank in self._pids}
        self._stalls: dict[int, _Stall] = {}
        self._started = self._next = self._next_idle = time.monotonic()
        self._alert = 0.0
        """When the first of the workers will have been silent for so long that it is looked at."""
        self._idle = 0.0
        self._verdict: HangVerdict | None = None
        self.leads = True
        self.reports = False
        self.progress: tuple[WorkerProgress, ...] = ()

    @property
    def hears(self) -> bool:
        """Whether lines matter: without rules for them nobody needs to call `line`."""
        return bool(self._trackers)

    def line(self, local_rank: int, line: bytes) -> None:
        """Take one line that a worker printed; called in the thread that reads them."""
        now, text = time.monotonic(), line[:LONGEST_LINE].decode(errors="replace")
        for tracker in self._trackers:
            tracker.take(local_rank, text, now)

    def look(self, now: float) -> HangVerdict | None:
        """Return what is wrong, once and for all; `now` is time.monotonic()'s."""
        if self._verdict is not None or now < self._next:
            return self._verdict
        self._next = now + _EVERY
        self.progress = self._boards.read(now)
        self.reports = self.reports or any(one.reports for one in self.progress)
        verdict = judge.judge_workers(self._seen(now), self._rules, now)
        if isinstance(verdict, StackRequest):
            self._ask(verdict, now)
        else:
            self._verdict = verdict
        return self._verdict

    def pause(self, now: float) -> float:
        """Return in how many seconds the next look is due."""
        watched = self._trackers or self._rules.idle_seconds or self._stalls
        calm = not watched and now - self._started > _YOUNG and now + _CALM < self._alert
        return _CALM if calm else _EVERY

    def _seen(self, now: float) -> Evidence:
        self._alert = float("inf")
        workers = tuple(self._worker(one, now) for one in self.progress if one.local_rank in self._pids)
        logs = tuple(tracker.seen() for tracker in self._trackers)
        return Evidence(self._started, workers, logs, self.leads, self.reports, self._idle_for(now))

    def _worker(self, said: WorkerProgress, now: float) -> WatchedWorker:
        at = None if said.age is None else now - said.age
        pace = self._paces[said.local_rank]
        if at is not None and said.step is not None:
            pace.take(said.step, at)
        worker = WatchedWorker(said.local_rank, said.step, said.total, at, pace.p99)
        alert = float("inf") if at is None else at + judge.attention_after(worker, self._rules)
        if now < alert:
            self._alert = min(self._alert, alert)
            if self._stalls.pop(said.local_rank, None) is not None:
                self._pulses.forget(said.local_rank)
            return worker
        stall = self._stall(said.local_rank, now)
        return replace(worker, activity=stall.activity, asked=stall.asked, place=stall.place)

    def _stall(self, local_rank: int, now: float) -> _Stall:
        """Look at a silent worker, and at the stack that it was asked for."""
        pulse = self._pulses.take(local_rank, now)
        stall = self._stalls.setdefault(local_rank, _Stall(pulse))
        stall.activity = pulse
        if stall.asked and stall.place is None and self._stacks is not None:
            stall.place = place(self._stacks.read().get(local_rank))
        return stall

    def _ask(self, look: StackRequest, now: float) -> None:
        """Ask for the stacks that a decision needs; they are read at the next look."""
        for local_rank in look.local_ranks:
            self._stalls[local_rank].asked = True
        if self._stacks is not None:
            self._stacks.ask({local_rank: self._pids[local_rank] for local_rank in look.local_ranks})
        self._next = now + _ANSWER

    def _idle_for(self, now: float) -> float:
        """Return for how long nothing has happened, where that is a rule and nothing better is known."""
        limit = self._rules.idle_seconds
        if not limit or self.reports or self._trackers:
            return 0.0
        if now >= self._next_idle:
            self._next_idle = now + max(_EVERY, limit / _PARTS)
            pulses = [self._pulses.take(local_rank, now) for local_rank in self._pids]
            self._idle = min((one.quiet_for for one in pulses if not one.gone), default=0.0)
        return self._idle
