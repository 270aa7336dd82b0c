"""The loop of a local run: observe, plan, apply, until the job has ended or somebody ends it.

The same plan as in the cluster; nothing about the job is decided here. The only file of the package that reads the
clock.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.local.loopback_coordinator import LoopbackCoordinator
from pytorchjob_operator.local.node import Node
from pytorchjob_operator.local.screen import Progress, Screen
from pytorchjob_operator.local.signals import RELOAD, Signals
from pytorchjob_operator.model import ConditionStatus, ConditionType, PyTorchJob
from pytorchjob_operator.names import EventType
from pytorchjob_operator.observed import Child, Observed, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan, replicas
from pytorchjob_operator.plan.writes import CreateChild, CreatePod, DeleteChild, DeleteJob, DeletePod, UpdateChild

_TICK = 1.0
"""How often the progress line is drawn anew at least."""
_SETTLE = 10.0
"""How long replicas of a job that has succeeded may take to end by themselves."""

_LAST_PATIENCE = 15.0
"""How long killed processes may take to be gone."""


class ExitStatus(IntEnum):
    """How `pytorchjob run` ends."""

    SUCCEEDED = 0
    FAILED = 1
    INVALID = 2
    TIMED_OUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


_ENDED = {ConditionType.SUCCEEDED: ExitStatus.SUCCEEDED, ConditionType.FAILED: ExitStatus.FAILED}
_STOPPED = {signal.SIGINT: ExitStatus.INTERRUPTED, signal.SIGTERM: ExitStatus.TERMINATED}


@dataclass(frozen=True, slots=True)
class Result:
    """The job as it was left, and how the run ends."""

    job: PyTorchJob
    status: ExitStatus
    elapsed: float


class Runner:
    """One run of one job."""

    def __init__(
        self, job: PyTorchJob, node: Node, screen: Screen, timeout: float | None, workers: Callable[[], int | None]
    ) -> None:
        """`workers` reads the number of workers anew from wherever the job came from."""
        self._job, self._node, self._screen, self._workers = job, node, screen, workers
        self._children: tuple[Child, ...] = ()
        self._status_due: datetime | None = None
        self._reported: frozenset[ReportedEvent] = frozenset()
        self._start = _monotonic()
        self._end = None if timeout is None else self._start + timeout
        self._terminal = _has_terminal()
        self._coordinator: LoopbackCoordinator

    def run(self, coordinator: LoopbackCoordinator) -> Result:
        """Run the job to its end; no process is left on return."""
        self._coordinator = coordinator
        with Signals(self._node.selector) as signals:
            try:
                status = self._until_end(signals)
                self._wind_down(status, signals)
            finally:
                self._node.kill_all()
                self._drain()
        return Result(self._job, status, _monotonic() - self._start)

    def _until_end(self, signals: Signals) -> ExitStatus:
        while True:
            for number in signals.take():
                if number is not RELOAD or (self._terminal and not _has_terminal()):
                    return _STOPPED.get(number, ExitStatus.TERMINATED)
                self._reload()
            wake_at = self._settle()
            for one in self._coordinator.take_news():
                self._screen.say(f"{'!' if one.warning else '-'} {one.reason}: {one.message}")
            self._show()
            ended = next((status for kind, status in _ENDED.items() if self._job.status.holds(kind)), None)
            if ended is not None:
                return ended
            if self._end is not None and _monotonic() >= self._end:
                return ExitStatus.TIMED_OUT
            self._node.pump(self._patience(wake_at))
            self._node.collect(_monotonic())

    def _settle(self) -> datetime | None:
        """Plan and apply until there is nothing to do; when to look again at the latest."""
        while True:
            self._node.advance(_monotonic())
            plan = make_plan(self._observe())
            self._coordinator.apply(self._job.metadata.uid, plan.coordinator)
            self._status_due, self._reported = plan.status_due, plan.reported
            if plan.empty:
                return plan.wake_at
            self._apply(plan)

    def _observe(self) -> Observed:
        return Observed(
            self._job,
            _now(),
            self._node.pods(),
            self._children,
            status_due=self._status_due,
            reported=self._reported,
            options=self._coordinator.options,
            report=self._coordinator.report(self._job.metadata.uid),
        )

    def _apply(self, plan: Plan) -> None:
        for write in plan.writes:
            match write:
                case CreateChild(kind, body):
                    self._children += (Child.from_api(kind, dict(body)),)
                case UpdateChild():
                    pass  # nothing that follows the spec is made here
                case CreatePod(body):
                    self._node.create(body, _monotonic())
                case DeletePod(_, uid, _):
                    self._node.delete(uid, _monotonic())
                case DeleteChild(kind, name, _):
                    self._children = tuple(one for one in self._children if (one.kind, one.name) != (kind, name))
                case DeleteJob():
                    pass  # its file is the user's, and the run ends with the job
        if plan.status is not None:
            version = str(int(self._job.metadata.resource_version or 0) + 1)
            metadata = self._job.metadata.model_copy(update={"resource_version": version})
            self._job = self._job.model_copy(update={"status": plan.status, "metadata": metadata})
        for event in plan.events:
            mark = "!" if event.type is EventType.WARNING else "-"
            self._screen.say(f"{mark} {event.reason}: {event.message}")

    def _reload(self) -> None:
        """Take over the number of workers from the job's file: what `kubectl apply` or `scale` do in a cluster."""
        specs = self._job.spec.pytorch_replica_specs
        try:
            workers = self._workers()
        except (InvalidJob, OSError) as error:
            self._screen.say(f"the job is not scaled, its file cannot be used: {error}")
            return
        if specs.worker is None or workers is None or workers == specs.worker.replicas:
            self._screen.say("the number of workers in the job's file is the one that runs: nothing to do")
            return
        self._screen.say(f"workers: {specs.worker.replicas or 1} -> {workers}")
        worker = specs.worker.model_copy(update={"replicas": workers})
        spec = self._job.spec.model_copy(update={"pytorch_replica_specs": specs.model_copy(update={"worker": worker})})
        meta = self._job.metadata
        self._job = self._job.model_copy(
            update={"spec": spec, "metadata": meta.model_copy(update={"generation": meta.generation + 1})}
        )

    def _wind_down(self, status: ExitStatus, signals: Signals) -> None:
        """Let replicas of a job that has succeeded end by themselves; ask the others to go, then make them go."""
        if status is ExitStatus.SUCCEEDED:
            self._pump_until(_monotonic() + _SETTLE, signals)
        if self._node.busy:
            self._screen.say(_WHY_STOPPED[status])
        self._node.stop_all(_monotonic())
        self._pump_until(None, signals)

    def _pump_until(self, end: float | None, signals: Signals) -> None:
        """Wait until no process is left, until `end`, or until somebody is impatient."""
        while self._node.busy and (end is None or _monotonic() < end):
            if any(number is not RELOAD for number in signals.take()):
                return
            self._node.pump(0.1)
            self._node.collect(_monotonic())
            self._node.advance_deletions(_monotonic())
            self._screen.flush()

    def _drain(self) -> None:
        """Reap what was killed; a process that the kernel does not let go is given up."""
        end = _monotonic() + _LAST_PATIENCE
        while self._node.busy and _monotonic() < end:
            self._node.pump(_TICK)
            self._node.collect(_monotonic())
        if self._node.busy:
            self._screen.say("some processes do not die, not even by SIGKILL: they hang in the kernel")

    def _patience(self, wake_at: datetime | None) -> float:
        times = [_TICK]
        if wake_at is not None:
            times.append((wake_at - _now()) / timedelta(seconds=1))
        times += [one - _monotonic() for one in (self._node.deadline(), self._end) if one is not None]
        return max(0.0, min(times))

    def _show(self) -> None:
        holding = (one.type for one in reversed(self._job.status.conditions) if one.status is ConditionStatus.TRUE)
        progress = Progress(
            job=self._job.metadata.name,
            state=next(holding, "Pending"),
            ready=self._node.ready,
            wanted=replicas.total(self._job),
            restarts=self._node.restarts,
        )
        self._screen.progress(progress, _monotonic() - self._start)


_WHY_STOPPED = {
    ExitStatus.SUCCEEDED: "the job has succeeded: the replicas that still run are stopped",
    ExitStatus.FAILED: "the job has failed: the replicas that still run are stopped",
    ExitStatus.TIMED_OUT: "the time given with --timeout is over: the replicas are stopped",
    ExitStatus.INTERRUPTED: "interrupted: the replicas are stopped; once more kills them at once",
    ExitStatus.TERMINATED: "terminated: the replicas are stopped",
}


def _has_terminal() -> bool:
    """Whether there is a terminal: a SIGHUP that comes with its loss means the end, not another look at the file."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _now() -> datetime:
    return datetime.now(UTC)


def _monotonic() -> float:
    return time.monotonic()
