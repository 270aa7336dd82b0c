"""Steps, speed and remaining time of the training, as far as they are known. Pure.

The coordinator's report has the steps; the speed is measured here, between reports. Where a script reports its own
percentage or remaining time, the job's status has it: these numbers win.
"""

from collections import deque
from collections.abc import Mapping

from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.model import ProgressStatus

_WINDOW = 30.0
"""Seconds of training over which the speed is measured."""
_SHORTEST = 1.0
_PATIENCE = 10.0
"""Seconds without a new step from which on the time since the last step counts too."""
_MAX_SAMPLES = 1000
_MOST_METRICS = 3


class Pace:
    """The speed of one round."""

    def __init__(self) -> None:
        self._round = ""
        self._samples: deque[tuple[float, int]] = deque(maxlen=_MAX_SAMPLES)

    def add(self, report: Report, now: float) -> None:
        """Take the step of a report; a new round, or a step back, begins a new measurement."""
        if report.step is None:
            return
        if report.round != self._round or (self._samples and report.step < self._samples[-1][1]):
            self._samples.clear()
            self._round = report.round
        if not self._samples or report.step != self._samples[-1][1]:
            self._samples.append((now, report.step))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        """Steps in a second; None until two reports are far enough apart. It falls while no step is reported."""
        if len(self._samples) < 2:
            return None
        (begin, first), (end, last) = self._samples[0], self._samples[-1]
        spent = (end if now - end < _PATIENCE else now) - begin
        return (last - first) / spent if spent >= _SHORTEST else None


def describe(report: Report, status: ProgressStatus | None, rate: float | None) -> str:
    """Return what is known as one text: `step 120/600, 20 %, 14.2 steps/s, 2:10 left, loss 0.21`; or nothing."""
    known = status or ProgressStatus()
    step = report.step if report.step is not None else known.step
    total = report.total if report.step is not None else known.total
    parts = [] if step is None else [f"step {step}" if total is None else f"step {step}/{total}"]
    percent = step * 100 // total if step is not None and total else known.percent
    parts += [] if percent is None else [f"{min(percent, 100)} %"]
    parts += [] if rate is None else [_speed(rate)]
    left = known.remaining_seconds
    if left is None and rate and step is not None and total is not None:
        left = int((total - step) / rate)
    parts += [] if left is None or left < 0 else [f"{_clock(left)} left"]
    return ", ".join([*parts, *_metrics(report.metrics or known.metrics or {})])


def _speed(rate: float) -> str:
    return f"{rate:.1f} steps/s" if rate >= 0.1 else f"{1 / rate:.0f} s per step"


def _clock(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


def _metrics(metrics: Mapping[str, float]) -> list[str]:
    first = sorted(metrics, key=lambda name: (name != "loss", name))[:_MOST_METRICS]
    return [f"{name} {metrics[name]:.4g}" for name in first]
