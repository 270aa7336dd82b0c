"""The observers of one agent, from round to round. `spec.agent.observeProgress: false` switches them off."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pytorchjob_agent.contract.environment import OBSERVE_PROGRESS
from pytorchjob_agent.observers.observed_progress import ObservedProgress
from pytorchjob_agent.observers.observed_saves import ObservedSaves
from pytorchjob_agent.rendezvous.extension import Extension, OwnPod, Registered, StartingWorkers
from pytorchjob_agent.script.observation import Observation


class RoundObservers(Extension):
    """Observes the workers of the present round."""

    def __init__(self) -> None:
        """Begin without workers."""
        self._progress: ObservedProgress | None = None
        self._saves: ObservedSaves | None = None

    def variables(self, starting: StartingWorkers) -> Sequence[Mapping[str, str]]:
        """Return where each worker posts its progress, and where it counts its saves."""
        self._progress = progress = ObservedProgress(starting.directory, starting.nproc)
        self._saves = saves = ObservedSaves(starting.files)
        return [
            {**progress.env(local_rank, os.environ), **saves.env(local_rank)} for local_rank in range(starting.nproc)
        ]

    @property
    def reads_lines(self) -> bool:
        """Return whether a round has begun."""
        return self._progress is not None

    def add_line(self, local_rank: int, line: bytes) -> None:
        """Keep a line that may show progress."""
        if self._progress is not None:
            self._progress.add_line(local_rank, line)

    def report(self, now: float, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the observed progress, for people alone, unless the script reports its steps; and its saves."""
        progress, saves = self._progress, self._saves
        observed = None if progress is None or "step" in fields else progress.read(now)
        shown = {} if observed is None else _as_shown(observed)
        return shown if saves is None else {**shown, **saves.report(fields.get("step", shown.get("shown_step")))}

    def finished(self) -> bool:
        """Note that the last position is the end."""
        if self._progress is not None:
            self._progress.ended()
        return True

    def over(self, *, clean: bool) -> None:
        """Stop the server; what it has seen is shown until the next round."""
        self.close()

    def close(self) -> None:
        """Stop the server."""
        if self._progress is not None:
            self._progress.close()


def _as_shown(observed: Observation) -> dict[str, Any]:
    return {
        "shown_step": observed.step,
        "shown_total": observed.total,
        "percent": observed.percent,
        "remaining": observed.remaining,
        "rate": observed.rate,
        "metrics": observed.metrics,
    }


def _create(pod: OwnPod) -> Extension:
    return Extension() if pod.environ.get(OBSERVE_PROGRESS) == "0" else RoundObservers()


OBSERVERS = Registered(_create)
