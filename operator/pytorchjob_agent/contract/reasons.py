"""Why something happened, as one word each that programs read: events, conditions, messages of agents, the status.

Sentences for people are made from these words and their values (`first_failure`, the command line's causes), and never
read back. Pure.
"""

from enum import StrEnum


class TrainingReason(StrEnum):
    """Reasons of events about a job's training, and of problems that have not ended it."""

    ROUND_STARTED = "RoundStarted"
    WORKER_FAILED = "WorkerFailed"
    WORKERS_HANG = "WorkersHang"
    REGROUPING = "Regrouping"
    WENT_ON = "WentOn"
    """A round goes on without a lost member."""
    CAME_BACK = "CameBack"
    """A lost member has come back into its round, without a restart of the others."""
    CANNOT_GO_ON = "CannotGoOn"
    """It cannot; `ShrinkState` says why."""
    GAVE_UP = "ElasticGaveUp"
    WAITING = "RendezvousWaiting"
    UNEQUAL_VERSIONS = "UnequalVersions"
    CLOCKS_DIFFER = "ClocksDiffer"
    CHECKPOINTS = "CheckpointsNotKept"
    POD_THREATENED = "PodThreatened"
    SAVED = "CheckpointSaved"
    PEER_UNREACHABLE = "PeerUnreachable"
    COORDINATOR_UNREACHABLE = "CoordinatorUnreachable"
    DUPLICATE_REPLICA = "DuplicateReplica"
    AGENT_REFUSED = "AgentRefused"
    AGENT_LIMIT = "AgentLimit"
    """The coordinator has no connection left for the job."""
    TIMED_OUT = "RendezvousTimeout"
    """The last rendezvous ended without a round."""
    COORDINATOR_DEFECT = "CoordinatorDefect"


class ExitReason(StrEnum):
    """Why an agent ended: the reason of its termination message."""

    WORKER_FAILED = TrainingReason.WORKER_FAILED.value
    WORKER_HANGS = "WorkerHangs"
    DRAINED = "Drained"
    RENDEZVOUS_FAILED = "RendezvousFailed"
    COORDINATOR_UNREACHABLE = TrainingReason.COORDINATOR_UNREACHABLE.value
    """No coordinator answered in time."""
    AGENT_REFUSED = TrainingReason.AGENT_REFUSED.value
    """The coordinator answered, and did not let the agent in."""
    NO_TORCH = "TorchMissing"
    BAD_SETUP = "BadSetup"
    BAD_USAGE = "BadUsage"
    PREFLIGHT_FAILED = "PreflightFailed"
    DEVICE_FAILED = "DeviceFailed"
    """A worker failed because a device of this node is broken."""
    AGENT_FAILED = "AgentFailed"
    FENCED = "Fenced"


UNFIT_NODE = frozenset({ExitReason.PREFLIGHT_FAILED, ExitReason.DEVICE_FAILED})
"""Reasons for which the pod has to be replaced: its container would start again on the same node."""


class FailureKind(StrEnum):
    """How the rank failed whose failure came first."""

    EXITED = TrainingReason.WORKER_FAILED.value
    HANGS = TrainingReason.WORKERS_HANG.value
    ENDED_EARLY = "RankEndedEarly"
    """It ended with success while other ranks needed it."""


class ShrinkState(StrEnum):
    """Whether the workers of a round go on without a lost member, or why a new round begins instead."""

    READY = "Ready"
    OFF = "SurviveOff"
    """`spec.agent.survive` is Off."""
    NOT_READY = "NotReady"
    """A rank has not begun to train, or an agent has not told yet."""
    FIRST_RANK = "FirstRankLost"
    """The lost member has rank 0, which saves in most scripts, and hosts the round's store."""
    SAVES = "LostRankSaves"
    """The lost member has saved in this round."""
    TOO_FEW = "TooFewMembers"
    """Fewer members than `minReplicas` are left."""
    ENDING = "RoundEnds"
    """The round ends anyway: a restart is planned, or members are done."""
    SEVERAL = "SeveralLost"
    """Another member may be lost too."""
    BROKEN = "ConnectionBroken"
    """As READY; and an operation has lost its connection to a rank of another member."""
    HELD = "HeldAtSave"
    """The workers have stopped behind a save, and wait for a round with those that have left."""
    UNCLEAR = "CauseUnclear"
    """It is not certain that this member has failed first: it hangs, or may have lost another one."""
    POLICY = "RestartPolicy"
    """The failure ends the job, or has used up its restarts."""
    TORCH = "TorchTooOld"
    """torch cannot form a group again: 2.15 is the first that can."""
    BACKEND = "BackendNotSupported"
    """The default group is not gloo's."""
    GROUPS = "SeveralGroups"
    """The script has process groups besides the default one."""
    HOOK = "CommunicationHook"
    """The script has registered a communication hook of its own."""
    MODEL = "ModelNotSupported"
    """Its gradients cannot be reduced again: it has a static graph, uneven batches, or mixed precision."""
    COMPILED = "ModelCompiled"
    """torch.compile has traced through DistributedDataParallel."""
    OPERATION = "OperationNotRepeatable"
    """Ranks were in different operations, or in one that needs the lost rank."""
    UNEQUAL = "ParametersDiffer"
    """The parameters of the ranks that go on differ."""


class CollectiveFaultKind(StrEnum):
    """What a rank did that keeps the others waiting."""

    NOT_BEGUN = "CollectiveNotBegun"
    """It has not begun the collective."""
    DIFFERS = "CollectiveDiffers"
    """It has begun another one in its place, or with another size."""
    OTHER_ORDER = "CollectivesInOtherOrder"
    """It waits in another group, for ranks that wait for it in this one."""


class EndReason(StrEnum):
    """Why the training, and with it the job, ended."""

    SUCCEEDED = "Succeeded"
    BUDGET = "RestartsUsedUp"
    SAME_ERROR = "SameErrorAgain"
    NO_PROGRESS = "NoProgress"
    SAME_HANG = "SameHangAgain"
    PERMANENT = "PermanentError"
    TIMEOUT = TrainingReason.TIMED_OUT.value
    VERSIONS = TrainingReason.UNEQUAL_VERSIONS.value
    BACKOFF_LIMIT = "BackoffLimitExceeded"
    """The job has used the restarts that `runPolicy.backoffLimit` allows."""
    DEADLINE = "DeadlineExceeded"
    HOPELESS = "RestartsWouldNotHelp"
    """A pod ended early again and again, or no node was fit for it."""
    REPLICA_FAILED = "ReplicaFailed"
    """A pod failed whose `restartPolicy` does not let it start again."""
