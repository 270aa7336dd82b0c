"""What the operator knows of the cluster, and the only place that turns it into an observation."""

from dataclasses import dataclass, field
from datetime import datetime

from pytorchjob_operator.control.jobs import JobCache
from pytorchjob_operator.kube.store import Store
from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.observed import Observed, Options, Pod, Refusal, Service


@dataclass(frozen=True)
class Caches:
    """The jobs and their children, kept up to date by watches and by the replies to our own writes."""

    jobs: JobCache
    pods: Store[Pod]
    services: Store[Service]
    options: Options = field(default_factory=Options)

    def observe(
        self, job: PyTorchJob, now: datetime, refusal: Refusal | None = None, status_due: datetime | None = None
    ) -> Observed:
        """One snapshot of a job and its children."""
        uid = job.metadata.uid
        return Observed(
            job=job,
            now=now,
            pods=self.pods.by_owner(uid),
            services=self.services.by_owner(uid),
            refusal=refusal,
            status_due=status_due,
            options=self.options,
        )
