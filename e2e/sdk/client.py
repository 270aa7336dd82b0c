"""A client that knows nothing of this project: the package kubeflow-training, as its users call it.

`client.py CASE KUBECONFIG NAMESPACE` takes one job through its life and prints what it saw, one JSON object a line.
It runs in a venv of its own and judges nothing: test_kubeflow_training.py does.
"""

import contextlib
import inspect
import json
import sys
import time

from kubeflow.training import (
    KubeflowOrgV1PyTorchJob,
    KubeflowOrgV1PyTorchJobSpec,
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    TrainingClient,
)
from kubernetes.client import models as k8s
from train import train

NAME = "sdk"
IMAGE = "pytorchjob/examples:dev"
PARAMETERS = {"backend": "gloo"}
REQUESTS = k8s.V1ResourceRequirements(requests={"cpu": "100m", "memory": "256Mi"})
FACTS = sys.stdout


def tell(step: str, **facts: object) -> None:
    """Print what was seen; stdout itself is the client's, which prints the logs that it follows."""
    print(json.dumps({"step": step, **facts}), file=FACTS, flush=True)


def pod_template() -> k8s.V1PodTemplateSpec:
    """A pod that Pod Security `restricted` admits."""
    container = k8s.V1Container(
        name="pytorch",
        image=IMAGE,
        command=["python", "-c", f"{inspect.getsource(train)}\ntrain({PARAMETERS})"],
        env=[k8s.V1EnvVar(name="OMP_NUM_THREADS", value="1")],
        resources=REQUESTS,
        security_context=k8s.V1SecurityContext(
            allow_privilege_escalation=False, capabilities=k8s.V1Capabilities(drop=["ALL"])
        ),
    )
    security = k8s.V1PodSecurityContext(
        run_as_non_root=True, run_as_user=1000, seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault")
    )
    return k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(labels={"team": "sdk"}),
        spec=k8s.V1PodSpec(containers=[container], security_context=security),
    )


def make_job() -> KubeflowOrgV1PyTorchJob:
    """One Master and two Workers, suspended until the client says otherwise."""
    roles = {
        role: KubeflowOrgV1ReplicaSpec(replicas=replicas, restart_policy="Never", template=pod_template())
        for role, replicas in (("Master", 1), ("Worker", 2))
    }
    return KubeflowOrgV1PyTorchJob(
        api_version="kubeflow.org/v1",
        kind="PyTorchJob",
        metadata=k8s.V1ObjectMeta(name=NAME),
        spec=KubeflowOrgV1PyTorchJobSpec(
            run_policy=KubeflowOrgV1RunPolicy(suspend=True), nproc_per_node="1", pytorch_replica_specs=roles
        ),
    )


def from_object(client: TrainingClient) -> None:
    """Make a suspended job, and resume it by an update of the whole object, as it was read."""
    client.create_job(job=make_job())
    # The client's own wait does not know this condition.
    until(lambda: states(client).get("Suspended") == "True")
    tell("suspended", conditions=states(client), pods=client.get_job_pod_names(NAME))
    job = client.get_job(NAME)
    job.spec.run_policy.suspend = False
    job.metadata.labels = {"updated": "yes"}
    client.update_job(job, NAME)


def from_function(client: TrainingClient) -> None:
    """Make a job of a function, and update it by a patch that names only what changes."""
    client.create_job(
        name=NAME,
        train_func=train,
        parameters=PARAMETERS,
        base_image=IMAGE,
        num_workers=3,
        num_procs_per_worker=1,
        # Not a dict: the client makes limits of its values too, and torch needs more than a small node has to promise.
        resources_per_worker=REQUESTS,
        env_vars={"OMP_NUM_THREADS": "1"},
    )
    patch = KubeflowOrgV1PyTorchJob(metadata=k8s.V1ObjectMeta(labels={"updated": "yes"}))
    client.update_job(patch, NAME)


def follow(client: TrainingClient) -> None:
    """Wait for the job as its owner would: running, the master's log as it grows, the end, and all that was said."""
    seen = {"Running", "Succeeded"}
    job = client.wait_for_job_conditions(NAME, expected_conditions=seen, wait_timeout=240, polling_interval=1)
    tell("running", conditions=states(client, job), followed=client.get_job_logs(NAME, follow=True)[0])
    client.wait_for_job_conditions(NAME, wait_timeout=120, polling_interval=1)
    logs, events = client.get_job_logs(NAME, is_master=False, verbose=True)
    tell("ended", conditions=states(client), succeeded=client.is_job_succeeded(NAME), logs=logs, events=events)


def look(client: TrainingClient) -> None:
    """Ask for the job and its pods in every way that the client offers."""
    tell(
        "looked",
        jobs=[job.metadata.name for job in client.list_jobs()],
        labels=client.get_job(NAME).metadata.labels,
        pods=sorted(client.get_job_pod_names(NAME)),
        masters=client.get_job_pod_names(NAME, is_master=True),
        second_workers=client.get_job_pod_names(NAME, replica_type="worker", replica_index=1),
    )


def states(client: TrainingClient, job: KubeflowOrgV1PyTorchJob | None = None) -> dict[str, str]:
    """Type to status of the job as it was read, or as it is now."""
    return {condition.type: condition.status for condition in client.get_job_conditions(NAME, job=job)}


def until(happened, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.5)


def main() -> None:
    case, kubeconfig, namespace = sys.argv[1:]
    client = TrainingClient(config_file=kubeconfig, namespace=namespace)
    {"object": from_object, "function": from_function}[case](client)
    follow(client)
    look(client)
    client.delete_job(NAME)
    tell("deleted", jobs=[job.metadata.name for job in client.list_jobs()])


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        main()
