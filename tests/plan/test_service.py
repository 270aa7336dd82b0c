"""The one headless Service of a job."""

from typing import Any

import pytest

from pytorchjob_operator.model import PyTorchJob
from pytorchjob_operator.names import ChildKind, ReplicaType, replica_labels
from pytorchjob_operator.observed import Child, Observed, Options
from pytorchjob_operator.plan import make_plan, owner
from pytorchjob_operator.plan.service import build_replica_service, build_service
from pytorchjob_operator.plan.writes import CreateChild, DeleteChild
from tests.factories import NOW, full_job, make_child, make_job, make_service, make_template, replica


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
    assert {port["name"]: port["port"] for port in build_service(job)["spec"]["ports"]} == expected


PER_REPLICA = Options(replica_services=True)


def replica_service(who: str) -> Child:
    """v1's Service of one replica, as it is seen."""
    place = replica(who)
    return make_child(ChildKind.SERVICE, f"x-{who}", uid=f"uid-{who}", replica_type=place.type, index=place.index)


def seen(*children: Child, options: Options, workers: int = 1) -> Observed:
    return Observed(make_job(workers=workers), NOW, (), (make_service(), *children), options=options)


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param(seen(options=Options()), [], id="the job's own is enough"),
        pytest.param(seen(options=PER_REPLICA), ["x-master-0", "x-worker-0"], id="the switch makes one per replica"),
        pytest.param(seen(replica_service("master-0"), options=PER_REPLICA), ["x-worker-0"], id="one is there"),
        pytest.param(seen(replica_service("worker-0"), options=Options()), [], id="what v1 made stays"),
        pytest.param(seen(replica_service("worker-1"), options=Options()), ["uid-worker-1"], id="but not for ever"),
    ],
)
def test_services_of_replicas(observed: Observed, expected: list[str]) -> None:
    writes = [write for write in make_plan(observed).writes if isinstance(write, CreateChild | DeleteChild)]
    found = [write.body["metadata"]["name"] if isinstance(write, CreateChild) else write.uid for write in writes]
    assert found == expected


def test_the_service_of_a_replica_is_v1s_and_resolves_before_it_is_ready() -> None:
    built = build_replica_service(full_job(), replica("worker-0"))
    labels = replica_labels("x", ReplicaType.WORKER, 0)
    assert (built["metadata"]["name"], built["metadata"]["labels"]) == ("x-worker-0", labels)
    assert built["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels,
        "ports": [{"name": "pytorchjob-port", "port": 23456}],
    }


def test_the_service_of_a_replica_has_the_ports_of_its_role() -> None:
    job = two(ports(metrics=1), ports(metrics=2))
    found = [build_replica_service(job, replica(who))["spec"]["ports"][0] for who in ("master-0", "worker-0")]
    assert found == [{"name": "metrics", "port": 1}, {"name": "metrics", "port": 2}]


def test_what_is_written_for_the_services_of_replicas() -> None:
    second = replica_service("master-1")
    surplus, odd = replica_service("worker-3"), make_child(ChildKind.SERVICE, "odd", replica_type=ReplicaType.WORKER)
    plan = make_plan(seen(replica_service("master-0"), surplus, second, odd, options=PER_REPLICA, workers=3))
    job = full_job(workers=3)
    assert [write for write in plan.writes if isinstance(write, CreateChild | DeleteChild)] == [
        *(CreateChild(ChildKind.SERVICE, build_replica_service(job, replica(f"worker-{index}"))) for index in range(3)),
        DeleteChild(ChildKind.SERVICE, "x-worker-3", "uid-worker-3"),
        DeleteChild(ChildKind.SERVICE, "x-master-1", "uid-master-1"),
    ]


def test_the_service_of_a_job_is_written_as_a_service() -> None:
    plan = make_plan(Observed(make_job(), NOW, (), ()))
    assert plan.writes[0] == CreateChild(ChildKind.SERVICE, build_service(full_job()))
