"""The search for hangs of one agent, from round to round, by the limits of `spec.agent.hang`."""

from collections.abc import Mapping, Sequence

from pytorchjob_agent.contract.hang_rules import DEFAULT_IDLE, HangRules
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.stillness import Pauses
from pytorchjob_agent.hangs.watch import HangWatch, History
from pytorchjob_agent.rendezvous.extension import Extension, OwnPod, Registered, RunningWorkers, StartingWorkers
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.stacks.stack_analysis import StackPlace


class RoundHangs(Extension):
    """Watches the workers of the present round."""

    def __init__(self, rules: HangRules, history: History | None = None) -> None:
        """Take the limits; `history` is what is known of the script."""
        self._rules, self._history = rules, history or History()
        self._starting: StartingWorkers | None = None
        self._meter: WorkerMeter | None = None
        self._watch: HangWatch | None = None

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Remember where the workers report; they need no variables."""
        self._starting = starting
        return ()

    def begin(self, running: RunningWorkers) -> None:
        """Watch these workers."""
        starting = self._starting
        assert starting is not None
        pauses = Pauses(self._rules.still_limit or DEFAULT_IDLE)
        port = running.assigned.master_port
        self._meter = WorkerMeter(running.pids, starting.stacks, pauses, port, starting.recorders)
        self._watch = HangWatch(self._rules, starting.files, self._meter, self._history)
        self._watch.has_rank_0 = running.assigned.first_rank == 0
        self._watch.share = running.share

    @property
    def reads_lines(self) -> bool:
        """Return whether the job has rules for its log."""
        return self._watch is not None and self._watch.reads_lines

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Match a line with the rules."""
        if self._watch is not None and self._watch.reads_lines:
            self._watch.add_line(local_rank, line)

    def judge(self, now: float) -> HangVerdict | None:
        """Return why the workers are stuck, if so."""
        return None if self._watch is None else self._watch.check(now)

    def pause(self, now: float) -> float:
        """Return in how many seconds `judge` is due again."""
        return super().pause(now) if self._watch is None else self._watch.pause(now)

    def last_place(self, local_rank: int) -> StackPlace | None:
        """Return where a worker was that has not moved since."""
        return None if self._meter is None else self._meter.last_place(local_rank)

    def over(self, *, clean: bool) -> None:
        """Keep what the round has shown of the script."""
        if self._watch is not None:
            self._history = self._watch.history
        self._watch = self._meter = None


def _create(pod: OwnPod) -> Extension:
    return RoundHangs(HangRules.from_env(pod.environ))


HANGS = Registered(_create)
