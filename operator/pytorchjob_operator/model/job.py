"""The whole resource: spec, status, and the metadata that the operator reads."""

from pydantic import Field

from pytorchjob_operator import names
from pytorchjob_operator.model.base import Model
from pytorchjob_operator.model.spec import JobSpec
from pytorchjob_operator.model.status import JobStatus


class Metadata(Model):
    """What the operator reads of an object's metadata; times stay as the API server wrote them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class PyTorchJob(Model):
    """A distributed PyTorch training job: a Master, workers, or both, each replica one pod."""

    api_version: str = names.API_VERSION
    kind: str = names.KIND
    metadata: Metadata = Field(default_factory=Metadata)
    spec: JobSpec = Field(description="What the user wants: the pods by role, and how the job runs.")
    status: JobStatus = Field(
        default_factory=JobStatus, description="What the operator observed and did. Only the operator writes it."
    )
