"""The one headless Service of a job: it gives every replica a name, ready or not."""

from typing import Any

from pytorchjob_operator import names
from pytorchjob_operator.model import PyTorchJob, main_container
from pytorchjob_operator.plan import owner


def build_service(job: PyTorchJob) -> dict[str, Any]:
    """Build the Service; a replica must be resolvable before it is ready, or rank 0 could never be found."""
    name = job.metadata.name
    labels = names.job_labels(name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service_name(name),
            "namespace": job.metadata.namespace,
            "labels": labels,
            "ownerReferences": owner.references(job),
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": _ports(job),
        },
    }


def _ports(job: PyTorchJob) -> list[dict[str, Any]]:
    """Every named port of container `pytorch` in any role, each name and each number once: the first role decides.

    The API server refuses a Service that has a number twice; a headless one needs the ports only for SRV records.
    """
    ports: dict[str, int] = {}
    for _, spec in job.spec.pytorch_replica_specs.items():
        for port in (main_container(spec.template) or {}).get("ports") or ():
            if port.get("name") and port["containerPort"] not in ports.values():
                ports.setdefault(port["name"], port["containerPort"])
    if not ports:
        ports[names.PORT_NAME] = names.DEFAULT_PORT
    return [{"name": name, "port": number} for name, number in ports.items()]
