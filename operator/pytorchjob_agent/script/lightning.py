"""A Lightning callback that reports progress to the agent: `Trainer(callbacks=[LightningProgress()])`.

Lightning is imported when the class is, because the agent itself needs no package. `lightning` and `pytorch_lightning`
have a base class each: the callback takes that of the package that the script has imported.
"""

import sys
from importlib import import_module
from math import isfinite
from typing import Any

from pytorchjob_agent.script.api import progress
from pytorchjob_agent.script.progress_file import LONGEST_NAME, MOST_METRICS

_TAKEN = ("step", "total")  # names of progress() itself
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
        """Learn how many steps there are; a training without a limit has no total."""
        steps = trainer.estimated_stepping_batches
        self._total = int(steps) if isfinite(steps) else None
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


def _numbers(metrics: Any) -> dict[str, float]:
    """Return the metrics that can be shown, those of the training first."""
    fit = [name for name in metrics if 0 < len(name) <= LONGEST_NAME - 2 and name.isascii() and name not in _TAKEN]
    ordered = sorted(fit, key=lambda name: not name.startswith(("loss", "train")))
    return {name: float(metrics[name]) for name in ordered[:MOST_METRICS]}
