"""What torch does not manage of a round's workers: their variables, progress files, stacks, signs of a hang."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.coordinator_endpoint import JOB
from pytorchjob_agent.contract.environment import ROUND_ID
from pytorchjob_agent.contract.hang_rules import DEFAULT_IDLE, HangRules
from pytorchjob_agent.contract.messages import Assigned, Checkpoint, RoundId, Save
from pytorchjob_agent.hangs import stack_analysis
from pytorchjob_agent.hangs.judge import HangVerdict
from pytorchjob_agent.hangs.meter import WorkerMeter
from pytorchjob_agent.hangs.stack_analysis import StackPlace
from pytorchjob_agent.hangs.stack_dump import StackDumps, source_around
from pytorchjob_agent.hangs.stillness import Pauses
from pytorchjob_agent.hangs.watch import HangWatch, History
from pytorchjob_agent.rendezvous.extension import Extensions, StartingWorkers
from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress
from pytorchjob_agent.script.observation import Observation, with_pace
from pytorchjob_agent.script.progress_file import RequestKind
from pytorchjob_agent.system.console import say

_STACK_SECONDS = 0.6


class RoundWorkers:
    """The workers of one round."""

    def __init__(
        self,
        directory: Path,
        nproc: int,
        rules: HangRules,
        logs: Any,
        extensions: Extensions,
        history: History | None = None,
    ) -> None:
        """Make what the workers need below `directory`; `history` has what earlier rounds have shown."""
        self._directory, self._rules, self._logs, self._extensions = directory, rules, logs, extensions
        self._files = ProgressFiles(directory, nproc)
        self._stacks = StackDumps(directory, nproc)
        self._pids: dict[int, int] = {}
        self._watch: HangWatch | None = None
        self._meter: WorkerMeter | None = None
        self._history = history or History()
        self._asked: int | None = None
        self._saving = 0

    def equipping(self, job: str, round_: RoundId) -> AbstractContextManager[None]:
        """Within it, torch starts workers that know their progress files, and in which round of the job they work."""

        def start(original: Callable[..., Any], **options: Any) -> Any:
            starting = StartingWorkers(self._directory, len(options["envs"]), self._files)
            variables = self._extensions.equip(starting)
            for local_rank, env in options["envs"].items():
                env.update({JOB: job, ROUND_ID: str(round_)})
                env.update(self._files.env(local_rank))
                env.update(variables[local_rank])
                env.update(self._stacks.env(local_rank, os.environ))
            return original(**options)

        return torch_compat.changed_start(start)

    def begin(self, pids: Mapping[int, int], assigned: Assigned, share_stillness: Callable[[float], float]) -> None:
        """Watch the processes that were started, by local rank; see Watch.share_stillness."""
        self._pids = dict(pids)
        pauses = Pauses(self._rules.still_limit or DEFAULT_IDLE)
        self._meter = WorkerMeter(self._pids, self._stacks, pauses, assigned.master_port)
        self._watch = HangWatch(self._rules, self._files, self._meter, self._history)
        self._watch.has_rank_0 = assigned.first_rank == 0
        self._watch.share_stillness = share_stillness
        if self._logs is not None and (self._watch.reads_lines or self._extensions.reads_lines):
            self._logs.listen(self._add_line)

    def _add_line(self, local_rank: int, line: bytes) -> None:
        """Pass on a line that a worker printed; the thread that reads the output calls it."""
        if self._watch is not None and self._watch.reads_lines:
            self._watch.add_line(local_rank, line)
        self._extensions.add_line(local_rank, line)

    @property
    def history(self) -> History:
        """What is known of the script, for the next round."""
        return self._history if self._watch is None else self._watch.history

    def judge(self, now: float) -> HangVerdict | None:
        """Return why the workers are stuck, if so."""
        return None if self._watch is None else self._watch.check(now)

    def pause(self, now: float) -> float:
        """Return in how many seconds `judge` is due again."""
        return 0.0 if self._watch is None else self._watch.pause(now)

    def cooperative(self) -> bool:
        """Return whether the workers accept requests to save or to stop."""
        return _cooperative(self._read())

    def report(self, now: float) -> dict[str, Any]:
        """Return the fields of a heartbeat about the workers: how far the furthest is, what they accept, and more."""
        found = self._files.read(now)
        saves = any(each.asks_checkpoint for each in found)
        fields = {"cooperative": _cooperative(found), "saves_on_request": saves, **_progress(found)}
        if self._watch is not None:
            fields["workers_age"] = max(now - self._watch.started, 0.0)
        return {**fields, **self._extensions.report(now, fields)}

    def request(self, stop: Checkpoint | None, save: Save | None) -> None:
        """Pass on new requests: to save and to end, if the workers accept that, and to save and to continue."""
        if stop is not None and self._asked is None:
            say(f"the workers are asked to save: {stop.reason}")
            self._asked = stop.number
            self._files.request(RequestKind.STOP, stop.number, stop.seconds)
        if save is not None and save.number > self._saving:
            say(f"the workers are asked to save, and continue: {save.reason}")
            self._saving = save.number
            self._files.request(RequestKind.CHECKPOINT, save.number, save.seconds)

    def answered(self) -> int:
        """Return the number of the last request that all workers here have answered; 0 before the first."""
        if self._asked is None:
            return 0
        return 0 if any(each.owes(self._asked, RequestKind.STOP) for each in self._read()) else self._asked

    def saved(self) -> int:
        """Return the number of the last request to continue that all workers here have saved for; 0 before that."""
        found = self._read() if self._saving else ()
        done = all(each.asks_checkpoint and each.answered >= self._saving for each in found)
        return self._saving if found and done else 0

    @property
    def asked(self) -> bool:
        """Whether the workers were asked to save: a worker that ends now has not finished its work."""
        return self._asked is not None

    def obeys(self) -> bool:
        """Whether the script ends when it is asked to stop: then its end is not a success."""
        return self._asked is not None and any(each.asks_stop for each in self._read())

    def _read(self) -> tuple[WorkerProgress, ...]:
        return self._files.read()

    def places(self) -> dict[int, StackPlace | None]:
        """Print the workers' stacks and return where they are, by local rank; None: no answer (frozen).

        A worker that has not moved since its last stack is still there: on a busy machine an answer takes long.
        """
        streams = self._logs.streams() if self._logs is not None else {}
        texts = self._stacks.collect(self._pids, streams, _STACK_SECONDS)
        found = {local_rank: stack_analysis.place(texts.get(local_rank), source_around) for local_rank in self._pids}
        return {local_rank: place or self._last_place(local_rank) for local_rank, place in found.items()}

    def _last_place(self, local_rank: int) -> StackPlace | None:
        return None if self._meter is None else self._meter.last_place(local_rank)

    def close(self) -> None:
        """Remove everything; the workers have to be gone."""
        self._files.close()
        self._stacks.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _cooperative(found: tuple[WorkerProgress, ...]) -> bool:
    return any(each.asks_checkpoint or each.asks_stop for each in found)


def _progress(found: tuple[WorkerProgress, ...]) -> dict[str, Any]:
    best = max((each for each in found if each.step is not None), key=lambda each: each.step or 0, default=None)
    return {} if best is None else _as_reported(best)


def _as_reported(best: WorkerProgress) -> dict[str, Any]:
    """Return the fields of a heartbeat for what a script reported, with its speed since its first report."""
    now, first = Observation(best.step, best.total), Observation(best.first_step)
    paced = with_pace(now, first, (best.first_age or 0.0) - (best.age or 0.0))
    shown = {"remaining": paced.remaining, "rate": paced.rate}
    ages = {"first_age": best.first_age or 0.0, "step_age": best.age or 0.0}
    known = {"step": best.step, "total": best.total, "metrics": best.metrics, "first_step": best.first_step}
    return {**known, **ages, **shown}
