"""The headless Service of a job, which names every replica, ready or not; and v1's one per replica, where wanted."""

from collections.abc import Iterator, Mapping
from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob, ReplicaSpec, main_container
from pytorchjob_operator.names import ChildKind
from pytorchjob_operator.plan import owner, replicas
from pytorchjob_operator.plan.context import Context
from pytorchjob_operator.plan.replicas import Replica
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild, Write


def writes(context: Context) -> Iterator[Write]:
    """Make the Services that are missing, and delete those of replicas that the job no longer has, v1's too."""
    job, there = context.job, context.seen.of(ChildKind.SERVICE)
    have = {one.name for one in there}
    if names.service_name(job.metadata.name) not in have:
        yield CreateChild(ChildKind.SERVICE, build_service(job))
    if context.seen.options.replica_services:
        for replica in replicas.wanted(job):
            if names.pod_name(job.metadata.name, replica.type, replica.index) not in have:
                yield CreateChild(ChildKind.SERVICE, build_replica_service(job, replica))
    for one in there:
        surplus = one.replica_type and one.index is not None and one.index >= replicas.count(job, one.replica_type)
        if surplus and not one.deleting:
            yield DeleteChild(ChildKind.SERVICE, one.name, one.uid)


def build_service(job: PyTorchJob) -> dict[str, Any]:
    """Build the Service; a replica must be resolvable before it is ready, or rank 0 could never be found."""
    name = job.metadata.name
    roles = [spec for _, spec in job.spec.pytorch_replica_specs.items()]
    return _headless(job, names.service_name(name), names.job_labels(name), _ports(roles))


def build_replica_service(job: PyTorchJob, replica: Replica) -> dict[str, Any]:
    """Build the Service that v1 makes for each replica: the pod's own name, for those who reach it from outside."""
    name = job.metadata.name
    spec = job.spec.pytorch_replica_specs.get(replica.type)
    labels = names.replica_labels(name, replica.type, replica.index)
    return _headless(job, names.pod_name(name, replica.type, replica.index), labels, _ports([spec] if spec else []))


def _headless(job: PyTorchJob, name: str, selector: Mapping[str, str], ports: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": dict(selector),
            "ownerReferences": owner.references(job),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(selector),
            "ports": ports,
        },
    }


def _ports(roles: list[ReplicaSpec]) -> list[dict[str, Any]]:
    """Every named port of container `pytorch` in these roles, each name and each number once: the first role decides.

    The API server refuses a Service that has a number twice; a headless one needs the ports only for SRV records.
    """
    ports: dict[str, int] = {}
    for spec in roles:
        for port in (main_container(spec.template) or {}).get("ports") or ():
            if port.get("name") and port["containerPort"] not in ports.values():
                ports.setdefault(port["name"], port["containerPort"])
    if not ports:
        ports[names.PORT_NAME] = names.DEFAULT_PORT
    return [{"name": name, "port": number} for name, number in ports.items()]
