"""The classes of a job's time.

The source of the names is `BadputType` of Google's ml-goodput-measurement 0.2.3, where a class of it matches. Its
classes that only calls in the script can separate are missing here: they are part of the class around them.
"""

from enum import StrEnum


class TimeClass(StrEnum):
    """What a second of a job's wall clock was spent on. The values are the names of fields in `status.goodput`."""

    RUNNING = "running"
    """Workers run, beyond the furthest step of earlier rounds, and no loss is known. Without known steps: all run."""
    PROGRAM_STARTUP = "programStartup"
    """Image, import, first rendezvous, compile, first step; of later rounds, from their start to a step."""
    UNPRODUCTIVE_CHECKPOINT_SAVE_TIME = "unproductiveCheckpointSaveTime"
    """The script's saves, as far as the training waits for them; and from a request to save until it is answered."""
    UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME = "unproductiveCheckpointRestoreTime"
    """Loads before the first step of a round."""
    WASTED_PROGRESS_FROM_DISRUPTION = "wastedProgressFromDisruption"
    """Steps that an earlier round had done already."""
    INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION = "infrastructureRecoveryFromDisruption"
    """From the end of a round until workers run again."""
    DETECTION = "detection"
    """From the last sign of life until the end of the round. Not a class of Google's."""
    HUNG = "hung"
    """From the last step until workers are recognised as hung. Not a class of Google's."""
    WAITING_FOR_PODS = "waitingForPods"
    """Pods that the job needs do not exist, or have no node. Not a class of Google's."""
    SUSPENDED = "suspended"
    """`runPolicy.suspend` is true. Not a class of Google's."""
    QUEUED = "queued"
    """The job waits in its queue, and may not have pods. Not a class of Google's."""
    OTHER = "other"
    """The training is over, and its pods end."""


TRAINING = (TimeClass.RUNNING, TimeClass.WASTED_PROGRESS_FROM_DISRUPTION, TimeClass.PROGRAM_STARTUP)
"""The classes of a round whose workers run and do not save on request."""
