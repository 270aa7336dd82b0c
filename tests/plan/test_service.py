"""The one headless Service of a job."""

from typing import Any

import pytest

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.plan import owner
from pytorchjob_operator.plan.service import build_service
from tests.factories import full_job, make_template


def ports(**numbers: int) -> dict[str, Any]:
    """A template whose container has these named ports."""
    given = [{"name": name.replace("_", "-"), "containerPort": number} for name, number in numbers.items()]
    return make_template(containers=[{"name": "pytorch", "ports": given}])


def two(master: dict[str, Any], worker: dict[str, Any]) -> PyTorchJob:
    roles = {"Master": {"template": master}, "Worker": {"template": worker}}
    return full_job(pytorchReplicaSpecs=roles)


def test_it_resolves_every_replica_ready_or_not() -> None:
    job = full_job()
    labels = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "x",
    }
    assert build_service(job) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "x", "namespace": "ns", "labels": labels, "ownerReferences": owner.references(job)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "pytorchjob-port", "port": 23456}],
        },
    }


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(
            two(ports(pytorchjob_port=1), ports(pytorchjob_port=2)),
            {"pytorchjob-port": 1},
            id="the Master's number wins",
        ),
        pytest.param(
            two(ports(pytorchjob_port=1), ports(pytorchjob_port=1, metrics=2)),
            {"pytorchjob-port": 1, "metrics": 2},
            id="every named port of any role",
        ),
        pytest.param(
            two(ports(dist=23456), ports(pytorchjob_port=23456)),
            {"dist": 23456},
            id="a number is not listed twice, which the API server would refuse",
        ),
        pytest.param(
            full_job(template=make_template(hostNetwork=True)),
            {"pytorchjob-port": 23456},
            id="a pod on the host's network names no port, the Service does",
        ),
        pytest.param(
            full_job(template=make_template(containers=[{"name": "pytorch", "ports": [{"containerPort": 1}]}])),
            {"pytorchjob-port": 23456},
            id="a port without a name is not listed",
        ),
    ],
)
def test_ports(job: PyTorchJob, expected: dict[str, int]) -> None:
    assert {one["name"]: one["port"] for one in build_service(job)["spec"]["ports"]} == expected
