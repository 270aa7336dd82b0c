"""Lightning callbacks: one reports progress to the agent, the other shows that of a script with no changed line.

`Trainer(callbacks=[LightningProgress()])` reports by `progress()`, so hangs are found by steps. `TrainerCallback` needs
no line: Lightning adds the callbacks of the entry points `...callbacks_factory` of all installed packages. It posts
as Hugging Face's Trainer does: people see it, no decision uses it, and no error of it reaches the training.

Lightning is imported when this module is, because the agent itself needs no package. `lightning` and
`pytorch_lightning` have a base class each: the callbacks take that of the package that the script has imported.
"""

import os
import sys
import time
from contextlib import suppress
from importlib import import_module
from math import isfinite
from typing import Any

from pytorchjob_agent.script.api import progress
from pytorchjob_agent.script.progress_file import LONGEST_NAME, MOST_METRICS
from pytorchjob_agent.script.status_client import StatusClient

_TAKEN = ("step", "total")  # names of progress() itself
_EVERY = 5.0
"""Seconds between two posts: reading metrics waits for the GPU."""
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _base() -> Any:
    """Return the class of callbacks; raises ImportError without Lightning."""
    loaded = [name for name in _PACKAGES if name in sys.modules]
    for name in loaded or _PACKAGES:
        try:
            return import_module(f"{name}.callbacks").Callback
        except ModuleNotFoundError as error:
            missing = error
    raise ImportError("LightningProgress needs the package lightning or pytorch_lightning: install it") from missing


class LightningProgress(_base()):  # type: ignore[misc]
    """Reports each optimizer step, and the metrics that the module logs whenever Lightning logs them itself."""

    def __init__(self) -> None:
        """Start without a step."""
        super().__init__()
        self._metrics: dict[str, float] = {}
        self._total: int | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Learn how many steps there are."""
        self._total = _total(trainer)
        self._report(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report the step. Metrics are read as often as Lightning logs: reading them waits for the GPU."""
        if trainer.global_step % max(trainer.log_every_n_steps, 1) == 0:
            self._metrics = _numbers(trainer.callback_metrics)
        self._report(trainer)

    def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """Report an unchanged step, which is a sign of life; not in the check before the first step."""
        if not trainer.sanity_checking:
            self._report(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report what the validation has found."""
        if not trainer.sanity_checking:
            self._metrics = _numbers(trainer.callback_metrics)
            self._report(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the last metrics."""
        self._metrics = _numbers(trainer.callback_metrics)
        self._report(trainer)

    def _report(self, trainer: Any) -> None:
        progress(trainer.global_step, self._total, **self._metrics)


class TrainerCallback(_base()):  # type: ignore[misc]
    """Posts steps and metrics to the agent's server when training begins, every five seconds, and when it ends."""

    def __init__(self, client: StatusClient) -> None:
        """Start without a step."""
        super().__init__()
        self._client = client
        self._due = 0.0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Post how many steps there are."""
        self._post(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Post the step if five seconds are over."""
        if time.monotonic() >= self._due:
            self._post(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Post the last metrics."""
        self._post(trainer)

    def _post(self, trainer: Any) -> None:
        self._due = time.monotonic() + _EVERY
        with suppress(Exception):  # the script must train in any case
            if trainer.is_global_zero:
                self._client.post(_status(trainer))


def callbacks() -> list[Any]:
    """Return what Lightning adds to a Trainer: one callback in a worker whose agent serves progress, else none."""
    with suppress(Exception):  # the script must train in any case
        client = StatusClient.of(os.environ)
        return [] if client is None else [TrainerCallback(client)]
    return []


def _status(trainer: Any) -> dict[str, Any]:
    """Return what Kubeflow's contract calls the status: the share if it is known, and metrics as texts."""
    step, total = trainer.global_step, _total(trainer)
    values: dict[str, float] = {"current_step": step, **_numbers(trainer.callback_metrics)}
    status: dict[str, Any] = {}
    if total:
        values["total_steps"], status["progressPercentage"] = total, min(100 * step // total, 100)
    return {**status, "metrics": [{"name": name, "value": str(value)} for name, value in values.items()]}


def _total(trainer: Any) -> int | None:
    """Return how many steps there are; None for a training without a limit."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if isfinite(steps) else None


def _numbers(metrics: Any) -> dict[str, float]:
    """Return the metrics that can be shown, those of the training first."""
    fit = [name for name in metrics if 0 < len(name) <= LONGEST_NAME - 2 and name.isascii() and name not in _TAKEN]
    ordered = sorted(fit, key=lambda name: not name.startswith(("loss", "train")))
    return {name: float(metrics[name]) for name in ordered[:MOST_METRICS]}
