"""The fields that only a cluster can honour: `source` replaces their values, `notes` has the sentences. Pure."""

from typing import NamedTuple


class ClusterOnly(NamedTuple):
    """A field that only a cluster can honour: a local run replaces its value and prints a note."""

    instead: object
    note: str
    """For a job that sets the field; `{value}` is the job's value."""


RUN_POLICY = {
    "suspend": ClusterOnly(False, "runPolicy.suspend is ignored: the job runs"),
    "managed_by": ClusterOnly(None, "runPolicy.managedBy {value} is ignored: the job runs here"),
    "scheduling_policy": ClusterOnly(None, "runPolicy.schedulingPolicy is ignored: all replicas start at once"),
}
"""By the field of runPolicy; a field that is not listed works on this machine too."""
