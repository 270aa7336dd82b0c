"""The stages of a local run, in words: the processes start, their agents join a round, and the workers train. Pure.

Time is an argument, in monotonic seconds.
"""

from enum import StrEnum

from pytorchjob_operator.coordinator_report import PhaseName, Report
from pytorchjob_operator.model import ConditionType, PyTorchJob
from pytorchjob_operator.plan.members import starts_agents


class LocalStage(StrEnum):
    """What the job does now."""

    STARTING = "Starting"
    """Processes are started, or their agents have not connected yet."""
    JOINING = "Joining"
    """Agents wait until the next round has its members."""
    TRAINING = "Training"
    """The workers of a round run."""
    RUNNING = "Running"
    """All processes run; without an agent, nothing more is known."""
    RESTARTING = "Restarting"
    """A replica that has ended waits for its next start."""
    WAITING = "Waiting"
    """No round could be formed: the coordinator waits for an agent."""
    ENDING = "Ending"
    """The training has ended; the replicas have not yet."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_OF_PHASE = {
    PhaseName.RENDEZVOUS: LocalStage.JOINING,
    PhaseName.RUNNING: LocalStage.TRAINING,
    PhaseName.STALLED: LocalStage.WAITING,
    PhaseName.ENDED: LocalStage.ENDING,
}
_TIMED = (LocalStage.STARTING, LocalStage.JOINING)
"""Stages that are over before the job does its work: a person wants to know how long they took."""


def find_stage(job: PyTorchJob, report: Report | None, *, all_ready: bool, started: bool) -> LocalStage:
    """Return the stage; `all_ready`: every replica runs or has succeeded, `started`: that was so before."""
    for kind, end in ((ConditionType.SUCCEEDED, LocalStage.SUCCEEDED), (ConditionType.FAILED, LocalStage.FAILED)):
        if job.status.holds(kind):
            return end
    if report is not None and report.phase in _OF_PHASE:
        return _OF_PHASE[report.phase]
    if not all_ready:
        return LocalStage.RESTARTING if started else LocalStage.STARTING
    return LocalStage.STARTING if report is not None and starts_agents(job) else LocalStage.RUNNING


class StageClock:
    """Measures how long the job is in each stage."""

    def __init__(self, now: float) -> None:
        self.stage = LocalStage.STARTING
        self._since = now

    def enter(self, stage: LocalStage, now: float) -> str:
        """Enter a stage; returns the stage that is over with its time, if that is worth a line, otherwise nothing."""
        if stage is self.stage:
            return ""
        over, took = self.stage, now - self._since
        self.stage, self._since = stage, now
        return f"{over} {brief(took)}" if over in _TIMED else ""

    def age(self, now: float) -> float:
        """Seconds in the present stage."""
        return now - self._since


def brief(seconds: float) -> str:
    """Format a short time: 0.3 s, 12 s."""
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
