"""The ownerReference that makes Kubernetes' garbage collector delete the children with the job, operator or not."""

from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob


def references(job: PyTorchJob) -> list[dict[str, Any]]:
    """The owner list of every child."""
    return [
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
