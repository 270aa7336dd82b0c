"""What torch does not manage of a round's workers: their variables, progress files and stacks."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pytorchjob_agent import torch_compat
from pytorchjob_agent.contract.collectives import GroupPosition
from pytorchjob_agent.contract.coordinator_endpoint import JOB
from pytorchjob_agent.contract.environment import ROUND_ID
from pytorchjob_agent.contract.messages import Assigned, Checkpoint, RoundId, Save
from pytorchjob_agent.rendezvous.extension import Extensions, RunningWorkers, Share, StartingWorkers
from pytorchjob_agent.rendezvous.hang_verdict import HangVerdict
from pytorchjob_agent.script.agent_side import ProgressFiles, WorkerProgress
from pytorchjob_agent.script.observation import Observation, with_pace
from pytorchjob_agent.script.progress_file import RequestKind
from pytorchjob_agent.stacks import stack_analysis
from pytorchjob_agent.stacks.recorders import Recorders
from pytorchjob_agent.stacks.stack_analysis import StackPlace
from pytorchjob_agent.stacks.stack_dump import StackDumps, source_around
from pytorchjob_agent.system.console import say

_STACK_SECONDS = 0.6
_LONGEST_PAUSE = 4.0
"""Seconds after which the loop looks again, whatever happens."""


class RoundWorkers:
    """The workers of one round."""

    def __init__(self, directory: Path, nproc: int, logs: Any, extensions: Extensions) -> None:
        """Make what the workers need below `directory`."""
        self._directory, self._logs, self._extensions = directory, logs, extensions
        self._files = ProgressFiles(directory, nproc)
        self._stacks = StackDumps(directory, nproc)
        self._recorders = Recorders(directory, nproc)
        self._pids: dict[int, int] = {}
        self._started: float | None = None
        self._asked: int | None = None
        self._saving = 0

    def equipping(self, job: str, round_: RoundId) -> AbstractContextManager[None]:
        """Within it, torch starts workers that know their progress files, and in which round of the job they work."""

        def start(original: Callable[..., Any], **options: Any) -> Any:
            starting = StartingWorkers(
                self._directory, len(options["envs"]), self._files, self._stacks, self._recorders
            )
            variables = self._extensions.variables(starting)
            for local_rank, env in options["envs"].items():
                env.update({JOB: job, ROUND_ID: str(round_)})
                env.update(self._files.env(local_rank))
                env.update(variables[local_rank])
                env.update(self._stacks.env(local_rank, os.environ))
                env.update(self._recorders.env(local_rank))
            return original(**options)

        return torch_compat.changed_start(start)

    def begin(
        self, pids: Mapping[int, int], assigned: Assigned, share: Share, report_now: Callable[[], None], now: float
    ) -> None:
        """Watch the processes that were started, by local rank; see RunningWorkers."""
        self._pids, self._started = dict(pids), now
        self._extensions.begin(RunningWorkers(self._pids, assigned, share, report_now))
        if self._logs is not None and self._extensions.reads_lines:
            self._logs.listen(self._extensions.add_line)

    def judge(self, now: float) -> HangVerdict | None:
        """Return why the workers are stuck, if so."""
        return self._extensions.judge(now)

    def pause(self, now: float) -> float:
        """Return in how many seconds `judge` is due again, at most."""
        return min(self._extensions.pause(now), _LONGEST_PAUSE)

    def cooperative(self) -> bool:
        """Return whether the workers accept requests to save or to stop."""
        return _cooperative(self._read())

    def report(self, now: float) -> dict[str, Any]:
        """Return the fields of a heartbeat about the workers: how far the furthest is, what they accept, and more."""
        found = self._files.read(now)
        saves = any(each.asks_checkpoint for each in found)
        fields = {"cooperative": _cooperative(found), "saves_on_request": saves, **_progress(found)}
        if self._started is not None:
            fields["workers_age"] = max(now - self._started, 0.0)
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
        """Print the workers' collectives and stacks; return where they are, by local rank; None: no answer (frozen).

        A worker that has not moved since its last stack is still there: on a busy machine an answer takes long.
        """
        streams = self._logs.streams() if self._logs is not None else {}
        for position in self.positions(0):
            if position.rank in streams:
                streams[position.rank].write_lines(position.words)
        texts = self._stacks.collect(self._pids, streams, _STACK_SECONDS)
        found = {local_rank: stack_analysis.place(texts.get(local_rank), source_around) for local_rank in self._pids}
        return {local_rank: place or self._extensions.last_place(local_rank) for local_rank, place in found.items()}

    def positions(self, first_rank: int) -> tuple[GroupPosition, ...]:
        """Return how far the workers are in their process groups, also those that have ended."""
        return self._recorders.positions(first_rank, time.monotonic_ns())

    def close(self) -> None:
        """Remove everything; the workers have to be gone."""
        self._files.close()
        self._stacks.close()
        self._recorders.close()
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
