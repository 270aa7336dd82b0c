"""One replica's pod: the user's template, and only these additions.

Labels, ownerReference, name; hostname and subdomain, so that the headless Service gives each replica a name; the job's
own domain as a DNS search, so that v1's short names resolve; the environment (`plan/environment`); the agent itself if
the job asks for it; memory for checkpoints; a place for caches; the agent's credential; the restart policy; the last
lines of a failed container as its message; the marks of a gang. (The defaults add the rendezvous port.) The template
never changes, and the pods of a job share its parts.
"""

from collections.abc import Mapping
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob, ReplicaSpec, RestartPolicy
from pytorchjob_operator.names import ReplicaType
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan import (
    cache_volume,
    checkpoint_memory,
    credential,
    environment,
    failing_nodes,
    gang,
    inject,
    owner,
    replicas,
)
from pytorchjob_operator.plan.environment import agent_variables
from pytorchjob_operator.plan.gang import Marks
from pytorchjob_operator.plan.replicas import Replica

_CLUSTER_DNS = (None, "ClusterFirst", "ClusterFirstWithHostNet")


def build_pod(job: PyTorchJob, replica: Replica, options: Options) -> dict[str, Any]:
    """Build the pod of one replica as it is sent to the API server."""
    spec = job.spec.pytorch_replica_specs.get(replica.type)
    marks = gang.marks(job, replica.type, options)
    assert spec is not None, f"{replica.type} is not a role of this job"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, replica, spec.template.get("metadata") or {}, marks),
        "spec": _placed(_spec(job, replica, spec, options), marks),
    }


def _metadata(job: PyTorchJob, replica: Replica, given: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    name = job.metadata.name
    labels = {**(given.get("labels") or {}), **marks.labels, **names.replica_labels(name, replica.type, replica.index)}
    if is_master(job, replica):
        labels[names.LABEL_JOB_ROLE] = names.JOB_ROLE_MASTER
    annotations = {**(given.get("annotations") or {}), **marks.annotations}
    return {
        "name": names.pod_name(name, replica.type, replica.index),
        "namespace": job.metadata.namespace,
        "labels": labels,
        "ownerReferences": owner.references(job),
        **({"annotations": annotations} if annotations else {}),
        **({"finalizers": given["finalizers"]} if given.get("finalizers") else {}),
    }


def is_master(job: PyTorchJob, replica: Replica) -> bool:
    """Whether this replica has the master role: Master 0, or Worker 0 where there is no Master."""
    has_master = job.spec.pytorch_replica_specs.master is not None
    return replica.index == 0 and (replica.type is ReplicaType.MASTER) == has_master


def _spec(job: PyTorchJob, replica: Replica, spec: ReplicaSpec, options: Options) -> dict[str, Any]:
    given: Mapping[str, Any] = spec.template.get("spec") or {}
    added: dict[str, Any] = {
        "restartPolicy": _restart_policy(spec),
        "hostname": names.pod_name(job.metadata.name, replica.type, replica.index),
        "subdomain": names.service_name(job.metadata.name),
        "containers": [_reporting(container) for container in environment.containers(job, replica, spec, options)],
    }
    if given.get("dnsPolicy") in _CLUSTER_DNS:
        added["dnsConfig"] = _dns(job, given.get("dnsConfig") or {}, options)
    pod = failing_nodes.avoiding(job, added["hostname"], {**given, **added})
    if agent_variables.injected(job, spec.template, options):
        pod = inject.into(pod, options.agent_image)
    if agent_variables.coordinator(job, spec.template, options) is None:
        return pod
    memory = job.spec.agent.checkpoint if job.spec.agent is not None else None
    pod = pod if memory is None else checkpoint_memory.into(pod, memory)
    return credential.into(cache_volume.into(pod) if agent_variables.keeps_caches(job, spec.template, options) else pod)


def _reporting(container: dict[str, Any]) -> dict[str, Any]:
    """Let the kubelet report the last lines of a main container that fails without a message, unless the user chose."""
    if container.get("name") != names.CONTAINER or container.get("terminationMessagePolicy"):
        return container
    return {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}


def _placed(spec: dict[str, Any], marks: Marks) -> dict[str, Any]:
    """Set the gang's scheduler unless the user chose another (v1), and what else marks its pods."""
    return {**spec, **{name: value for name, value in marks.fields.items() if not spec.get(name)}}


def _restart_policy(spec: ReplicaSpec) -> str:
    """Return the kubelet's policy: Never under ExitCode, where the operator decides by the exit code."""
    policy = replicas.restart_policy(spec)
    return RestartPolicy.NEVER.value if policy is RestartPolicy.EXIT_CODE else policy.value


def _dns(job: PyTorchJob, given: Mapping[str, Any], options: Options) -> dict[str, Any]:
    meta = job.metadata
    domain = f"{names.service_name(meta.name)}.{meta.namespace}.svc.{options.cluster_domain}"
    searches = list(given.get("searches") or ())
    return {**given, "searches": searches if domain in searches else [*searches, domain]}
