"""The headless Service of a job, which names every replica, ready or not; optionally v1's Service per replica."""

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
    """Create missing Services, and delete those of replicas that the job no longer has, v1's too."""
    job, there = context.job, context.seen.of(ChildKind.SERVICE)
    have = {service.name for service in there}
    if names.service_name(job.metadata.name) not in have:
        yield CreateChild(ChildKind.SERVICE, build_service(job))
    if context.seen.options.replica_services:
        for replica in replicas.wanted(job):
            if names.pod_name(job.metadata.name, replica.type, replica.index) not in have:
                yield CreateChild(ChildKind.SERVICE, build_replica_service(job, replica))
    for service in there:
        surplus = (
            service.replica_type
            and service.index is not None
            and service.index >= replicas.count(job, service.replica_type)
        )
        if surplus and not service.deleting:
            yield DeleteChild(ChildKind.SERVICE, service.name, service.uid)


def build_service(job: PyTorchJob) -> dict[str, Any]:
    """Build the Service; replicas must resolve before they are ready, or no rank could find rank 0."""
    name = job.metadata.name
    roles = [spec for _, spec in job.spec.pytorch_replica_specs.items()]
    return _headless(job, names.service_name(name), names.job_labels(name), _ports(roles))


def build_replica_service(job: PyTorchJob, replica: Replica) -> dict[str, Any]:
    """Build v1's Service of a replica, with the pod's name, for clients that use that name."""
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
