"""Defaults of unset fields: applied in memory before a plan is made, never written back to a spec.

Pure. The job's YAML stays as the user wrote it, so GitOps sees no drift.
"""

from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model.base import CleanPodPolicy, RestartPolicy
from pytorchjob_operator.model.job import PyTorchJob
from pytorchjob_operator.model.spec import ElasticPolicy, JobSpec, ReplicaSpec, ReplicaSpecs

DEFAULT_REPLICAS = 1
DEFAULT_NPROC_PER_NODE = "auto"


def with_defaults(job: PyTorchJob) -> PyTorchJob:
    """Return the job with every default of v1 filled in; idempotent."""
    spec = job.spec
    replicas = _replica_specs(spec.pytorch_replica_specs)
    changes = {
        "pytorch_replica_specs": replicas,
        "nproc_per_node": _nproc_per_node(spec),
        "elastic_policy": spec.elastic_policy and _elastic_policy(spec.elastic_policy, replicas.worker),
        "run_policy": spec.run_policy.model_copy(
            update={"clean_pod_policy": spec.run_policy.clean_pod_policy or CleanPodPolicy.NONE}
        ),
    }
    return job.model_copy(update={"spec": spec.model_copy(update=changes)})


def main_container(template: dict[str, Any]) -> dict[str, Any] | None:
    """Return the container that trains: the container named `pytorch`, otherwise the first."""
    containers: list[dict[str, Any]] = (template.get("spec") or {}).get("containers") or []
    named = (container for container in containers if container.get("name") == names.CONTAINER)
    return next(named, containers[0] if containers else None)


def master_port(template: dict[str, Any]) -> int:
    """Return the port of MASTER_ADDR: the main container's port named `pytorchjob-port`, otherwise 23456."""
    ports = (main_container(template) or {}).get("ports") or []
    found = (port.get("containerPort") for port in ports if port.get("name") == names.PORT_NAME)
    return int(next(found, None) or names.DEFAULT_PORT)


def _replica_specs(specs: ReplicaSpecs) -> ReplicaSpecs:
    return ReplicaSpecs(
        master=specs.master and _replica_spec(specs.master), worker=specs.worker and _replica_spec(specs.worker)
    )


def _replica_spec(spec: ReplicaSpec) -> ReplicaSpec:
    return ReplicaSpec(
        replicas=DEFAULT_REPLICAS if spec.replicas is None else spec.replicas,
        restart_policy=spec.restart_policy or RestartPolicy.ON_FAILURE,
        template=_with_port(spec.template),
    )


def _with_port(template: dict[str, Any]) -> dict[str, Any]:
    """Return the template with the default port in its main container; the given dict stays unchanged."""
    main = main_container(template)
    if main is None or template["spec"].get("hostNetwork"):
        # On the host's network a container port is a host port, and two pods on a node would conflict.
        return template
    if any(port.get("name") == names.PORT_NAME for port in main.get("ports") or []):
        return template
    port = {"name": names.PORT_NAME, "containerPort": names.DEFAULT_PORT}
    changed = {**main, "ports": [*(main.get("ports") or []), port]}
    pod = template["spec"]
    containers = [changed if container is main else container for container in pod["containers"]]
    return {**template, "spec": {**pod, "containers": containers}}


def _nproc_per_node(spec: JobSpec) -> str | None:
    """Return `auto`, unless the deprecated elasticPolicy.nProcPerNode sets the number."""
    if spec.nproc_per_node is not None:
        return spec.nproc_per_node
    deprecated = spec.elastic_policy and spec.elastic_policy.n_proc_per_node
    return None if deprecated is not None else DEFAULT_NPROC_PER_NODE


def _elastic_policy(policy: ElasticPolicy, worker: ReplicaSpec | None) -> ElasticPolicy:
    """Each bound defaults to the other, both to the number of workers."""
    fallback = worker.replicas if worker else None
    low, high = policy.min_replicas, policy.max_replicas
    return policy.model_copy(
        update={
            "min_replicas": low if low is not None else high if high is not None else fallback,
            "max_replicas": high if high is not None else low if low is not None else fallback,
        }
    )
