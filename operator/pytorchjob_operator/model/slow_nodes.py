"""The nodes that a status names: those on which pods fail, and those of slow ranks."""

from pydantic import Field

from pytorchjob_operator.model.base import Count, Model, Short, Time


class NodeFailures(Model):
    """The failed pods of one node."""

    node: Short = Field(description="Name of the node.")
    pods: Count = Field(description="Pods of the job that failed on it, without evicted, preempted and deleted ones.")
    last_time: Time = Field(description="When the operator counted the last of them.")


class StragglerStatus(Model):
    """A rank that is slower than the others, which wait for it in collectives."""

    rank: Count = Field(description="The rank in the job's latest round.")
    pod: Short = Field(description="Name of its pod.")
    node: Short = Field(default="", description="The node of the pod. Unset: unknown.")
    percent: Count = Field(
        description="How much more time it needs outside collectives than the median of the other ranks. Example: 25."
    )
    since: Time = Field(description="When it was found.")
    place: Short = Field(
        default="",
        description="The line of the script at which it works while the others do not: then its node is not the cause."
        " Unset: all ranks do the same work, or it is unknown.",
    )
