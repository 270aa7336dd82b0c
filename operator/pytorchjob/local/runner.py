"""The loop of a local run: observe, plan, apply, until the job has ended or a signal or the timeout stops it.

The plan is the same as in a cluster, and nothing about the job is decided here. SIGTERM and SIGINT stop the replicas
(`_wind_down`), a second signal kills them; SIGHUP scales the workers. Only this module of the package reads the clock.
"""

import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from pytorchjob.local import failure, pace, result
from pytorchjob.local.job_file import JobFile
from pytorchjob.local.log_filter import LogFilter
from pytorchjob.local.loopback_coordinator import LoopbackCoordinator
from pytorchjob.local.node import LocalNode, ReplicaEnd
from pytorchjob.local.record import Record
from pytorchjob.local.screen import ProgressLine, Screen
from pytorchjob.local.signal_pipe import RELOAD, SignalPipe
from pytorchjob.local.stages import LocalStage, StageClock, find_stage
from pytorchjob_agent.contract.first_failure import FirstFailure
from pytorchjob_agent.contract.reasons import TrainingReason
from pytorchjob_operator.coordinator_report import Report
from pytorchjob_operator.coordinator_update import Sync
from pytorchjob_operator.errors import InvalidJob
from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.names import EventType
from pytorchjob_operator.observed import Child, Observed, ReportedEvent
from pytorchjob_operator.plan import Plan, make_plan, replicas
from pytorchjob_operator.plan.writes import (
    CreateChild,
    CreatePod,
    CreateReserve,
    DeleteChild,
    DeleteJob,
    DeletePod,
    ReportWorkload,
    UpdateChild,
)

_TICK = 1.0
"""Maximum seconds between two updates of the progress line."""
_SETTLE = 10.0
"""Seconds in which the replicas of a job that has succeeded may end by themselves."""

_KILL_TIMEOUT = 15.0
"""Seconds to wait for killed processes to disappear."""


class ExitStatus(IntEnum):
    """The exit status of `pytorchjob run`."""

    SUCCEEDED = 0
    FAILED = 1
    INVALID = 2
    TIMED_OUT = 124
    INTERRUPTED = 130
    TERMINATED = 143


_ENDED = {ConditionType.SUCCEEDED: ExitStatus.SUCCEEDED, ConditionType.FAILED: ExitStatus.FAILED}
_STOPPED = {signal.SIGINT: ExitStatus.INTERRUPTED, signal.SIGTERM: ExitStatus.TERMINATED}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The final job, the exit status, the length of the run in seconds, and its restarts."""

    job: PyTorchJob
    status: ExitStatus
    elapsed: float
    restarts: int
    failure: tuple[str, ...] = ()
    """Why the job failed, and the next step; empty for a job that did not fail."""
    time_spent: str = ""
    """For which part of its time workers ran, and what was lost, in one sentence; empty if it is unknown."""


class Runner:
    """One run of one job."""

    def __init__(
        self, job: PyTorchJob, node: LocalNode, screen: Screen, timeout: float | None, file: JobFile, record: Record
    ) -> None:
        """`file` has the current number of workers, and keeps the status; `record` is for other commands."""
        self._job, self._node, self._screen, self._file, self._record = job, node, screen, file, record
        self._messages: list[tuple[str, str, bool, FirstFailure | None]] = []
        self._ends: list[ReplicaEnd] = []
        self._children: tuple[Child, ...] = ()
        self._status_due: datetime | None = None
        self._reported: frozenset[ReportedEvent] = frozenset()
        self._start = _monotonic()
        self._stages, self._pace, self._was_ready = StageClock(self._start), pace.Pace(), False
        self._coordinated = False
        self._end = None if timeout is None else self._start + timeout
        self._terminal = _has_terminal()
        self._coordinator: LoopbackCoordinator
        self._filter: LogFilter

    def run(self, coordinator: LoopbackCoordinator, log_filter: LogFilter) -> RunResult:
        """Run the job to its end; no process is left on return. `log_filter` knows where the scripts failed."""
        self._coordinator, self._filter = coordinator, log_filter
        with SignalPipe(self._node.selector) as signals:
            try:
                status = self._until_end(signals)
                report, then = self._coordinator.report(self._job.metadata.uid), _now()
                self._wind_down(status, signals)
            finally:
                self._node.kill_all()
                self._drain()
        spent = result.time_spent(self._job, report.ledger if report else None, then)
        self._job = result.at_rest(self._job)
        self._file.keep(self._job)
        self._keep(final=True)
        if status is not ExitStatus.FAILED:
            self._report_messages()
        self._report_ends()
        if status is ExitStatus.SUCCEEDED:
            self._show()
        if status is ExitStatus.FAILED and (who := failure.blamed(self._job, self._ends)):
            for line in log_filter.withheld(*who):
                self._screen.message(line)
        why = failure.report(self._job, self._ends, log_filter.place) if status is ExitStatus.FAILED else []
        return RunResult(self._job, status, _monotonic() - self._start, self._restarts(), tuple(why), spent)

    def _until_end(self, signals: SignalPipe) -> ExitStatus:
        while True:
            for number in signals.take():
                if number is not RELOAD or (self._terminal and not _has_terminal()):
                    return _STOPPED.get(number, ExitStatus.TERMINATED)
                self._reload()
            wake_at = self._settle()
            self._keep()
            for event in self._coordinator.take_events():
                self._note(event.reason, event.message, warning=event.warning, first=event.first)
            ended = next((status for kind, status in _ENDED.items() if self._job.status.holds(kind)), None)
            if ended is ExitStatus.FAILED:
                self._ends = [*self._node.take_ends(), *self._node.worker_ends()]
                return ended  # one report follows when the processes have ended, with the last line
            if not self._will_fail():
                self._report_messages()
                self._report_ends()
            if ended is not None:
                return ended
            self._show()
            if self._end is not None and _monotonic() >= self._end:
                return ExitStatus.TIMED_OUT
            self._node.pump(self._timeout(wake_at))
            self._node.collect(_monotonic())

    def _settle(self) -> datetime | None:
        """Plan and apply until nothing is left to do; returns the time by which the next plan is due."""
        while True:
            self._node.advance(_monotonic())
            plan = make_plan(self._observe())
            self._coordinator.apply(self._job.metadata.uid, plan.coordinator)
            self._status_due, self._reported = plan.status_due, plan.reported
            self._coordinated = isinstance(plan.coordinator, Sync)
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
                case UpdateChild() | ReportWorkload():
                    pass  # a local run creates no child that follows the spec, and has no queue
                case CreateReserve():
                    pass  # this machine has no other node
                case CreatePod(body):
                    self._coordinator.write_credential(self._job.metadata.uid, body["metadata"]["name"])
                    self._node.create(body, _monotonic())
                case DeletePod(_, uid, _):
                    self._node.delete(uid, _monotonic())
                case DeleteChild(kind, name, _):
                    self._children = tuple(
                        child for child in self._children if (child.kind, child.name) != (kind, name)
                    )
                case DeleteJob():
                    pass  # the file belongs to the user, and the run ends with the job
        if plan.status is not None:
            version = str(int(self._job.metadata.resource_version or 0) + 1)
            metadata = self._job.metadata.model_copy(update={"resource_version": version})
            self._job = self._job.model_copy(update={"status": plan.status, "metadata": metadata})
            self._file.keep(self._job)
        for event in plan.events:
            self._note(event.reason, event.message, warning=event.type is EventType.WARNING)

    def _note(self, reason: str, message: str, *, warning: bool, first: FirstFailure | None = None) -> None:
        """Keep an event until it is known whether the job has failed: then its report takes the place of events."""
        self._messages.append((message, reason, warning, first))
        self._record.event(self._job, reason, message, warning=warning)

    def _keep(self, *, final: bool = False) -> None:
        """Show other commands how the job is."""
        self._record.keep(
            lambda: result.final_object(self._job, self._job), self._node.objects, _monotonic(), final=final
        )

    def _will_fail(self) -> bool:
        """Whether the coordinator has ended the job as failed; the next plan writes that into the status."""
        report = self._coordinator.report(self._job.metadata.uid)
        return report is not None and report.ended is not None and report.ended.failed

    def _report_messages(self) -> None:
        for message, reason, warning, first in self._messages:
            text = failure.with_place(message, first, self._filter.place)
            self._screen.message(f"{'!' if warning else '-'} {reason}: {text}")
            if reason == TrainingReason.ROUND_STARTED:
                self._filter.forget_places()
        self._messages.clear()

    def _report_ends(self) -> None:
        for end in self._node.take_ends():
            self._screen.message(f"{end.label}: {end.how}\n  {end.reported}".rstrip())

    def _reload(self) -> None:
        """Set the number of workers to that of the job's file, as `kubectl apply` or `scale` do in a cluster."""
        specs = self._job.spec.pytorch_replica_specs
        try:
            workers = self._file.workers()
        except (InvalidJob, OSError) as error:
            self._screen.message(f"the job is not scaled, because its file cannot be used: {error}")
            return
        if specs.worker is None or workers is None or workers == specs.worker.replicas:
            self._screen.message("the job already has the number of workers in its file: nothing to do")
            return
        self._screen.message(f"workers: {specs.worker.replicas or 1} -> {workers}")
        worker = specs.worker.model_copy(update={"replicas": workers})
        spec = self._job.spec.model_copy(update={"pytorch_replica_specs": specs.model_copy(update={"worker": worker})})
        meta = self._job.metadata
        self._job = self._job.model_copy(
            update={"spec": spec, "metadata": meta.model_copy(update={"generation": meta.generation + 1})}
        )

    def _wind_down(self, status: ExitStatus, signals: SignalPipe) -> None:
        """End the replicas: wait for them if the job has succeeded, then SIGTERM, then SIGKILL."""
        if status is ExitStatus.SUCCEEDED:
            self._pump_until(_monotonic() + _SETTLE, signals)
        if self._node.busy:
            self._screen.message(_WHY_STOPPED[status])
        self._node.stop_all(_monotonic())
        self._pump_until(None, signals)

    def _pump_until(self, end: float | None, signals: SignalPipe) -> None:
        """Wait until no process is left, until `end`, or until a second signal arrives."""
        while self._node.busy and (end is None or _monotonic() < end):
            if any(number is not RELOAD for number in signals.take()):
                return
            self._node.pump(0.1)
            self._node.collect(_monotonic())
            self._node.advance_deletions(_monotonic())
            self._screen.flush()

    def _drain(self) -> None:
        """Reap the killed processes; give up on a process that hangs in the kernel."""
        end = _monotonic() + _KILL_TIMEOUT
        while self._node.busy and _monotonic() < end:
            self._node.pump(_TICK)
            self._node.collect(_monotonic())
        if self._node.busy:
            self._screen.message("some processes are still there after SIGKILL: they hang in the kernel")

    def _timeout(self, wake_at: datetime | None) -> float:
        """Seconds until the loop has something to do at the latest."""
        times = [_TICK]
        if wake_at is not None:
            times.append((wake_at - _now()) / timedelta(seconds=1))
        times += [moment - _monotonic() for moment in (self._node.deadline(), self._end) if moment is not None]
        return max(0.0, min(times))

    def _show(self) -> None:
        """Show the stage; the summary takes its place at the end."""
        now, report = _monotonic(), self._coordinator.report(self._job.metadata.uid)
        if report is None and self._coordinated:
            report = Report()  # the coordinator's thread has not reported yet
        ready, wanted = self._node.ready, replicas.total(self._job)
        stage = find_stage(self._job, report, all_ready=ready >= wanted, started=self._was_ready)
        self._was_ready = self._was_ready or stage in (LocalStage.TRAINING, LocalStage.RUNNING)
        over = self._stages.enter(stage, now)
        if over:
            self._screen.message(f"{self._job.metadata.name}: {over}")
        if stage in (LocalStage.SUCCEEDED, LocalStage.FAILED):
            return
        details = ""
        if stage is LocalStage.TRAINING and report is not None:
            self._pace.add(report, now)
            details = pace.describe(report, self._job.status.progress, self._pace.rate(now))
        progress = ProgressLine(
            job=self._job.metadata.name,
            state=stage,
            ready=ready,
            wanted=wanted,
            restarts=self._restarts(),
            details=details,
            age=self._stages.age(now),
        )
        self._screen.progress(progress, now - self._start)

    def _restarts(self) -> int:
        """Return how often containers, and failed workers inside them, were restarted."""
        elastic = self._job.status.elastic
        report = self._coordinator.report(self._job.metadata.uid)
        return self._node.restarts + max((elastic.restarts if elastic else None) or 0, report.restarts if report else 0)


_WHY_STOPPED = {
    ExitStatus.SUCCEEDED: "the job has succeeded: stopping the replicas that still run",
    ExitStatus.FAILED: "the job has failed: stopping the replicas that still run",
    ExitStatus.TIMED_OUT: "the time limit of --timeout is over: stopping the replicas",
    ExitStatus.INTERRUPTED: "interrupted: stopping the replicas; press Ctrl-C again to kill them",
    ExitStatus.TERMINATED: "terminated: stopping the replicas",
}


def _has_terminal() -> bool:
    """True if there is a terminal; a SIGHUP due to its loss ends the run instead of reading the file again."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _now() -> datetime:
    return datetime.now(UTC)


def _monotonic() -> float:
    return time.monotonic()
