"""The coordinator as the reconciler sees it, and what it is told after each look at a job."""

from typing import Protocol

from pytorchjob_operator.model import ConditionType, ManagedBy, PyTorchJob, with_defaults
from pytorchjob_operator.observed import Options, Pod, PodPhase
from pytorchjob_operator.plan.ending import ended
from pytorchjob_operator.plan.expect import expect
from pytorchjob_operator.report import Report
from pytorchjob_operator.rounds.state import Policy, Seat

_AT_REST = (PodPhase.SUCCEEDED, PodPhase.FAILED)


class Rounds(Protocol):
    """Whoever decides which pods of a job train together."""

    def report(self, uid: str) -> Report | None:
        """How a job's rounds stand; None where nothing is known."""

    def expect(self, uid: str, policy: Policy, seats: dict[int, Seat]) -> None:
        """What the job is now."""

    def conclude(self, uid: str, *, failed: bool) -> None:
        """The job has ended and pods of it still run: their agents are told to stop."""

    def forget(self, uid: str) -> None:
        """Nothing more is wanted of the job's agents."""


class NoRounds:
    """There is no coordinator."""

    def report(self, uid: str) -> Report | None:
        """Nothing is known."""

    def expect(self, uid: str, policy: Policy, seats: dict[int, Seat]) -> None:
        """Nobody to tell."""

    def conclude(self, uid: str, *, failed: bool) -> None:
        """Nobody to tell."""

    def forget(self, uid: str) -> None:
        """Nobody to tell."""


def tell(rounds: Rounds, job: PyTorchJob, options: Options, pods: tuple[Pod, ...]) -> None:
    """Tell what a job is, by one look at it; one that is suspended, going or somebody else's is none."""
    uid, policy = job.metadata.uid, job.spec.run_policy
    ours = policy.managed_by in (None, ManagedBy.OPERATOR)
    held = bool(policy.suspend) or bool(job.metadata.deletion_timestamp)
    expected = None if held or not ours else expect(with_defaults(job), options, pods)
    end = ended(job)
    if expected is None or (end is not None and all(pod.phase in _AT_REST for pod in pods)):
        rounds.forget(uid)
    elif end is not None:
        rounds.conclude(uid, failed=end is ConditionType.FAILED)
    else:
        rounds.expect(uid, *expected)
