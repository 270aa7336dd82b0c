import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_operator.model import PyTorchJob, main_container, master_port, with_defaults
from pytorchjob_operator.model.parse import parse_job
from tests.model import corpus

JOBS = st.sampled_from(sorted(corpus.GOOD)).map(corpus.GOOD.__getitem__)


def defaulted(job: corpus.Job) -> PyTorchJob:
    return with_defaults(parse_job(job))


def bare() -> PyTorchJob:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    return defaulted({"spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}}})


def test_what_v1_fills_in() -> None:
    spec = bare().spec
    master = spec.pytorch_replica_specs.master
    assert master is not None
    assert (master.replicas, master.restart_policy) == (1, "OnFailure")
    assert (spec.nproc_per_node, spec.run_policy.clean_pod_policy, spec.run_policy.suspend) == ("auto", "None", False)
    assert master_port(master.template) == 23456


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        pytest.param({}, (2, 2), id="neither bound: the number of workers"),
        pytest.param({"minReplicas": 1}, (1, 1), id="only min: max is the same"),
        pytest.param({"maxReplicas": 4}, (4, 4), id="only max: min is the same"),
        pytest.param({"minReplicas": 1, "maxReplicas": 4}, (1, 4), id="both: as written"),
    ],
)
def test_the_elastic_bounds(policy: dict[str, int], bounds: tuple[int, int]) -> None:
    found = defaulted(corpus.job(elasticPolicy=policy)).spec.elastic_policy
    assert found is not None
    assert (found.min_replicas, found.max_replicas) == bounds


def test_the_deprecated_number_of_processes_leaves_the_new_one_unset() -> None:
    assert defaulted(corpus.elastic(nProcPerNode=2)).spec.nproc_per_node is None


def test_an_empty_policy_is_the_default() -> None:
    roles = {"Worker": corpus.role() | {"restartPolicy": ""}}
    spec = defaulted({"spec": {"pytorchReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": ""}}}).spec
    assert spec.pytorch_replica_specs.worker is not None
    assert (spec.pytorch_replica_specs.worker.restart_policy, spec.run_policy.clean_pod_policy) == ("OnFailure", "None")


@pytest.mark.parametrize(
    ("containers", "name"),
    [
        pytest.param([{"name": "a"}, {"name": "pytorch"}], "pytorch", id="the one named pytorch"),
        pytest.param([{"name": "a"}, {"name": "b"}], "a", id="otherwise the first"),
    ],
)
def test_the_container_that_trains(containers: list[dict[str, str]], name: str) -> None:
    found = main_container({"spec": {"containers": containers}})
    assert found is not None
    assert found["name"] == name


def test_a_template_without_containers_has_none() -> None:
    assert main_container({}) is None
    assert master_port({}) == 23456


def test_the_users_own_port_stays_alone() -> None:
    ports = [{"name": "pytorchjob-port", "containerPort": 1234}]
    job = corpus.changed(corpus.job(), {"spec.pytorchReplicaSpecs.Worker": corpus.role(ports=ports)})
    worker = defaulted(job).spec.pytorch_replica_specs.worker
    assert worker is not None
    assert worker.template["spec"]["containers"][0]["ports"] == ports


@given(JOBS)
def test_twice_is_once_and_the_given_object_is_not_touched(job: corpus.Job) -> None:
    before = copy.deepcopy(job)
    once = defaulted(job)
    assert with_defaults(once) == once
    assert job == before
