"""`PyTorchJobClient`: create, watch, change and delete jobs from Python, in a cluster or on this machine."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchjob.client.backend import Backend, Object
from pytorchjob.client.function import TrainFunction
from pytorchjob.client.values import SUCCEEDED, Job, JobFailedError
from pytorchjob_operator.errors import InvalidJob, Problem
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.terminal import visible

JobSource = str | Path | Mapping[str, Any]
"""A file, YAML text, or a job as a dict."""


class PyTorchJobClient:
    """Jobs of one namespace, or of this machine. It keeps no state: two clients see the same jobs.

    client = PyTorchJobClient()                    # the current context of the kubeconfig
    client = PyTorchJobClient.local()              # this machine, without a cluster
    job = client.create_job("pytorchjob.yaml")
    client.wait_for_job_status(job.name, callback=print)
    """

    def __init__(self, backend: Backend | None = None, *, namespace: str = "", context: str = "") -> None:
        """Without a back end: the cluster of the kubeconfig, or of the pod in which this runs.

        Raises NoCluster if there is none.
        """
        self._backend = backend if backend is not None else _cluster(namespace, context)

    @classmethod
    def local(cls, directory: str | Path | None = None) -> "PyTorchJobClient":
        """Run jobs on this machine; their logs and states are kept in `directory`, by default a temporary one."""
        from pytorchjob.client.on_machine import MachineBackend

        return cls(MachineBackend(directory))

    def create_job(self, job: JobSource) -> Job:
        """Start a job. Raises InvalidJob with every wrong field, before anything is created."""
        body = _read(job)
        return Job.from_object(self._backend.create(body))

    def train(self, name: str, function: TrainFunction) -> Job:
        """Start a job that runs a Python function in every process. Raises InvalidJob if the function cannot travel."""
        return self.create_job(function.job(name))

    def get_job(self, name: str) -> Job:
        """Read a job."""
        return Job.from_object(self._backend.get(name))

    def list_jobs(self) -> list[Job]:
        """Read all jobs, the newest first."""
        jobs = map(Job.from_object, self._backend.list())
        return sorted(jobs, key=lambda job: str(job.object["metadata"].get("creationTimestamp")), reverse=True)

    def get_job_logs(self, name: str, *, follow: bool = False, ranks: str = "") -> Iterator[str]:
        """Yield the lines of all ranks, or of some (`0,3-5`), merged; with `follow` until the job ends."""
        return self._backend.logs(name, follow=follow, ranks=ranks)

    def get_job_events(self, name: str) -> Sequence[Object]:
        """Read the events of a job and of its pods, oldest first."""
        return self._backend.events(name)

    def wait_for_job_status(
        self,
        name: str,
        status: Collection[str] = (SUCCEEDED,),
        timeout: float = 600.0,
        callback: Callable[[Job], object] | None = None,
        polling_interval: float = 2.0,
    ) -> Job:
        """Wait until the job has one of these states, and return it.

        `callback` gets the job whenever its status has changed. Raises JobFailedError if the job ends otherwise, and
        TimeoutError after `timeout` seconds; the job continues then.
        """
        end, known = time.monotonic() + timeout, None
        while True:
            job = self.get_job(name)
            shown = job.object.get("status")
            if callback is not None and shown != known:
                callback(job)
            known = shown
            if job.state in status or job.end in status:
                return job
            if job.end:
                raise JobFailedError(job)
            left = end - time.monotonic()
            if left <= 0:
                wanted = " or ".join(sorted(status))
                raise TimeoutError(
                    f"the job {name} is {job.state} after {timeout:g} s, not {wanted}: {visible(job.message)}"
                )
            time.sleep(min(polling_interval, left))

    def scale_job(self, name: str, workers: int) -> Job:
        """Change the number of workers, the Master not counted."""
        if workers < 1:
            raise InvalidJob([Problem("workers", f"{workers} is not possible: use at least 1, or suspend_job")])
        role = ReplicaType.WORKER.value
        return self._changed(name, {"pytorchReplicaSpecs": {role: {"replicas": workers}}})

    def suspend_job(self, name: str) -> Job:
        """Delete the pods and keep the job; `resume_job` starts it again, from what was saved outside of the pods."""
        return self._changed(name, {"runPolicy": {"suspend": True}})

    def resume_job(self, name: str) -> Job:
        """Start a suspended job again."""
        return self._changed(name, {"runPolicy": {"suspend": False}})

    def delete_job(self, name: str) -> None:
        """Stop a job, and delete it with its pods."""
        self._backend.delete(name)

    def _changed(self, name: str, spec: Mapping[str, Any]) -> Job:
        return Job.from_object(self._backend.patch(name, {"spec": spec}))


def _cluster(namespace: str, context: str) -> Backend:
    # The kubernetes package takes a fifth of a second to import, and a local run does without it.
    from pytorchjob.client.on_cluster import ClusterBackend
    from pytorchjob.cluster.connect import connect
    from pytorchjob.cluster.options import ConnectOptions

    return ClusterBackend(connect(ConnectOptions(context=context or None, namespace=namespace or None)))


def _read(job: JobSource) -> Object:
    """Return the only job of a file, a text or a dict, checked by the API server's rules."""
    from pytorchjob.local.source import read_objects
    from pytorchjob_operator.model.load import is_job, load_objects, validate_dict

    if isinstance(job, Mapping):
        body = dict(job)
        problems = validate_dict(body)
        if problems:
            raise InvalidJob(problems)
        return body
    text = str(job)
    objects = load_objects(text, "the text") if "\n" in text else read_objects(text)
    jobs = [body for body in objects if is_job(body)]
    if len(jobs) != 1:
        raise InvalidJob([Problem("", f"expected a single job, found {len(jobs)}: create them one by one")])
    return jobs[0]
