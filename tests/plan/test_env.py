"""The contract env, by training-operator v1's own worked values (contract A.7)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchjob_agent.contract.environment import ReplicaEnv
from pytorchjob_operator.model import ConditionType, JobStatus, PyTorchJob, with_defaults
from pytorchjob_operator.observed import Options
from pytorchjob_operator.plan.environment.replica import build_env
from pytorchjob_operator.plan.replicas import wanted
from tests.factories import at, condition, full_job, make_job, make_template, replica

ELASTIC = {"minReplicas": 1, "maxReplicas": 2, "rdzvBackend": "c10d"}


def master(port: str = "23456", world: str = "2", rank: str = "0", *, at: str = "x-master-0.x") -> dict[str, str]:
    """What every replica of a job with a master gets."""
    return {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "MASTER_ADDR": at,
        "PET_MASTER_ADDR": at,
        "WORLD_SIZE": world,
        "RANK": rank,
        "PET_NODE_RANK": rank,
    }


def rendezvous(nnodes: str = "1:2", endpoint: str = "x-worker-0.x:23456", backend: str = "c10d") -> dict[str, str]:
    """What every replica of an elastic job gets."""
    return {"PET_RDZV_ENDPOINT": endpoint, "PET_RDZV_BACKEND": backend, "PET_NNODES": nnodes}


def conf(text: str) -> dict[str, str]:
    return {"PET_RDZV_CONF": text}


TIMINGS = "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=10"
SEPARATE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
IS_HOST, IS_GUEST = (conf(f"is_host={text},{TIMINGS}") | SEPARATE for text in ("true", "false"))


def nodes(number: int, nproc: str = "auto") -> dict[str, str]:
    return {"PET_NPROC_PER_NODE": nproc, "PET_NNODES": str(number)}


def port(number: int) -> dict[str, Any]:
    ports = [{"name": "pytorchjob-port", "containerPort": number}]
    return make_template(containers=[{"name": "side"}, {"name": "pytorch", "ports": ports}])


def limited(**limits: Any) -> dict[str, Any]:
    return make_template(containers=[{"name": "pytorch", "resources": {"limits": limits}}])


OPTIONS = Options(accelerators=("example.com/npu",))
ALONE = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto"}


@pytest.mark.parametrize(
    ("case", "who", "expected"),
    [
        pytest.param({}, "master-0", master() | nodes(2), id="simple.yaml: the master"),
        pytest.param({}, "worker-0", master(rank="1") | nodes(2), id="simple.yaml: the worker"),
        pytest.param({"workers": None}, "master-0", master(world="1") | nodes(1), id="a Master alone"),
        pytest.param(
            {"nprocPerNode": "2"}, "master-0", master(world="4") | nodes(2, "2"), id="cpu-demo: world counts processes"
        ),
        pytest.param(
            {"nprocPerNode": "2"},
            "worker-0",
            master(world="4", rank="1") | nodes(2, "2"),
            id="cpu-demo: rank counts pods",
        ),
        pytest.param(
            {"nprocPerNode": "gpu"}, "worker-0", master(rank="1") | nodes(2, "gpu"), id="gpu counts as one process"
        ),
        pytest.param(
            {"nprocPerNode": "²"}, "worker-0", master(rank="1") | nodes(2, "²"), id="a digit that int() refuses is none"
        ),
        pytest.param(
            {"workers": 3}, "worker-2", master(world="4", rank="3") | nodes(4), id="send/recv: the last of four"
        ),
        pytest.param(
            {"template": port(2000)}, "worker-0", master("2000", rank="1") | nodes(2), id="the template's port"
        ),
        pytest.param(
            {"master": None, "elasticPolicy": ELASTIC, "workers": 2},
            "worker-1",
            ALONE | rendezvous() | IS_GUEST,
            id="echo.yaml: elastic without a Master has no rank and no address",
        ),
        pytest.param(
            {"elasticPolicy": ELASTIC, "workers": 2},
            "worker-0",
            ALONE | master(world="3", rank="1") | rendezvous() | IS_HOST,
            id="elastic with a Master has both sets",
        ),
        pytest.param(
            {"master": None, "workers": 3},
            "worker-2",
            master(world="3", rank="2", at="x-worker-0.x") | nodes(3),
            id="beyond v1: workers only meet at worker 0",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {}, "workers": 2},
            "worker-0",
            ALONE | rendezvous("2:2") | IS_HOST,
            id="an elastic job without bounds is a range of one",
        ),
        pytest.param(
            {"elasticPolicy": {"nProcPerNode": 4}},
            "master-0",
            master() | rendezvous("1:1") | {"PET_NPROC_PER_NODE": "4"} | IS_GUEST,
            id="the deprecated field does not count in the world (row 6)",
        ),
        pytest.param(
            {
                "master": None,
                "elasticPolicy": ELASTIC
                | {
                    "rdzvBackend": "etcd",
                    "rdzvHost": "etcd",
                    "rdzvPort": 2379,
                    "rdzvId": "run",
                    "rdzvConf": [{"key": "timeout", "value": "900"}, {"key": "a", "value": "b"}],
                    "maxRestarts": 0,
                },
            },
            "worker-0",
            ALONE
            | rendezvous("1:2", "etcd:2379", "etcd")
            | {
                "PET_MAX_RESTARTS": "0",
                "PET_RDZV_ID": "run",
                "PET_RDZV_CONF": "timeout=900,a=b",
            },
            id="every rendezvous field",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {"rdzvConf": []}},
            "worker-0",
            ALONE | rendezvous("1:1") | IS_HOST,
            id="an empty rdzvConf is none (v1 panicked)",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {"standalone": True, "minReplicas": 1, "maxReplicas": 2}},
            "worker-0",
            ALONE | rendezvous("1:1") | {"PET_STANDALONE": "1"} | SEPARATE,
            id="a standalone run waits for no other node",
        ),
        pytest.param(
            {"master": None, "workers": 3, "elasticPolicy": {"rdzvBackend": "static"}},
            "worker-2",
            ALONE | master(world="3", rank="2", at="x-worker-0.x") | rendezvous("3:3", backend="static"),
            id="a static rendezvous has ranks, and worker 0 as its master",
        ),
        pytest.param(
            {"workers": 2, "elasticPolicy": {"rdzvBackend": "static"}},
            "worker-1",
            ALONE | master(world="3", rank="2") | rendezvous("3:3", "x-master-0.x:23456", "static"),
            id="a static rendezvous counts the Master, where it meets",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {"rdzvHost": "x-worker-0"}},
            "worker-0",
            ALONE | rendezvous("1:1", "x-worker-0:23456") | IS_HOST,
            id="v1's name of worker 0 is known, too",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {"rdzvHost": "elsewhere"}},
            "worker-0",
            ALONE | rendezvous("1:1", "elsewhere:23456") | conf(TIMINGS) | SEPARATE,
            id="a host elsewhere is left to torch",
        ),
        pytest.param(
            {"master": None, "elasticPolicy": {"rdzvConf": [{"key": "is_host", "value": "0"}]}},
            "worker-0",
            ALONE | rendezvous("1:1") | conf(f"is_host=0,{TIMINGS}") | SEPARATE,
            id="the user's is_host wins",
        ),
        pytest.param(
            {"master": None, "template": limited(cpu="1500m")},
            "worker-0",
            master(world="1", at="x-worker-0.x") | nodes(1, "2"),
            id="auto is the CPU limit, and the world still counts pods",
        ),
        pytest.param(
            {"template": limited(**{"example.com/npu": 8})},
            "worker-0",
            master(rank="1") | nodes(2, "8"),
            id="a device that the settings name",
        ),
    ],
)
def test_worked_values(case: dict[str, Any], who: str, expected: dict[str, str]) -> None:
    assert build_env(full_job(**case), replica(who), OPTIONS).to_env() == expected


@pytest.mark.parametrize(
    ("policy", "resumed", "expected"),
    [
        pytest.param({}, False, None, id="c10d: torch's own default, as v1, so that old and new pods meet"),
        pytest.param({"rdzvId": "run"}, True, "run", id="c10d: the user's, in every attempt"),
        pytest.param({"rdzvBackend": "etcd", "rdzvHost": "etcd"}, False, "uid-x", id="etcd: the job's uid"),
        pytest.param({"rdzvBackend": "etcd-v2", "rdzvId": "run"}, False, "run", id="etcd: the user's"),
        pytest.param({"rdzvBackend": "etcd-v2"}, True, "uid-x-20260102T030409", id="etcd: a new one after a resume"),
        pytest.param({"rdzvBackend": "etcd", "rdzvId": "run"}, True, "run-20260102T030409", id="the user's, too"),
    ],
)
def test_a_store_that_outlives_the_job_gets_an_id_for_each_attempt(
    policy: dict[str, Any], resumed: bool, expected: str | None
) -> None:
    conditions = (condition(ConditionType.SUSPENDED, true=False),) if resumed else ()
    job = full_job(master=None, elasticPolicy=policy, status=JobStatus(start_time=at(4), conditions=conditions))
    assert build_env(job, replica("worker-0"), OPTIONS).to_env().get("PET_RDZV_ID") == expected


SUSPENDED = (condition(ConditionType.SUSPENDED),)


@pytest.mark.parametrize(
    ("status", "options", "policy", "expected"),
    [
        pytest.param(JobStatus(conditions=SUSPENDED), OPTIONS, {}, "uid-x", id="made suspended: the first attempt"),
        pytest.param(JobStatus(), Options(legacy=True), {}, None, id="beside pods of v1: as v1 has it"),
        pytest.param(JobStatus(), Options(legacy=True), {"rdzvId": "run"}, "run", id="beside pods of v1: the user's"),
    ],
)
def test_the_id_before_the_first_attempt_and_beside_pods_of_v1(
    status: JobStatus, options: Options, policy: dict[str, Any], expected: str | None
) -> None:
    job = full_job(master=None, elasticPolicy={"rdzvBackend": "etcd", **policy}, status=status)
    assert build_env(job, replica("worker-0"), options).to_env().get("PET_RDZV_ID") == expected


def on_ports(**ports: int) -> PyTorchJob:
    """A job of these roles, each with a port of its own."""
    roles = {role: {"replicas": 1, "template": port(number)} for role, number in ports.items()}
    job = {"metadata": {"name": "x"}, "spec": {"pytorchReplicaSpecs": roles, "elasticPolicy": {}}}
    return with_defaults(PyTorchJob.model_validate(job))


@pytest.mark.parametrize(
    ("backend", "ports", "endpoint"),
    [
        pytest.param("c10d", {"Master": 2000, "Worker": 3000}, "x-worker-0.x:3000", id="c10d: the first worker's"),
        pytest.param("static", {"Master": 2000, "Worker": 3000}, "x-master-0.x:2000", id="static: the Master's"),
        pytest.param("c10d", {"Master": 2000}, "x-worker-0.x:23456", id="c10d without workers: the default"),
    ],
)
def test_the_port_is_that_of_the_pod_which_opens_it(backend: str, ports: dict[str, int], endpoint: str) -> None:
    job = on_ports(**ports)
    policy = job.spec.elastic_policy
    assert policy is not None
    spec = job.spec.model_copy(update={"elastic_policy": policy.model_copy(update={"rdzv_backend": backend})})
    found = build_env(job.model_copy(update={"spec": spec}), replica("master-0"), OPTIONS).to_env()
    assert found["PET_RDZV_ENDPOINT"] == endpoint
    assert found["MASTER_PORT"] == "2000"


def test_each_role_has_limits_of_its_own() -> None:
    roles = {role: {"template": limited(cpu=cpus)} for role, cpus in (("Master", "2"), ("Worker", "3"))}
    job = full_job(pytorchReplicaSpecs=roles)
    envs = [build_env(job, replica(who), OPTIONS) for who in ("master-0", "worker-0")]
    assert [env.nproc_per_node for env in envs] == ["2", "3"]


def test_the_bounds_of_an_elastic_job_without_any_are_its_workers() -> None:
    found = build_env(make_job(master=None, workers=3, elasticPolicy={}), replica("worker-0"), OPTIONS)
    assert found.nnodes == "3:3"


def test_the_order_is_that_of_v1() -> None:
    job = full_job(elasticPolicy={**ELASTIC, "maxRestarts": 3, "rdzvId": "run"})
    assert list(build_env(job, replica("master-0"), OPTIONS).to_env()) == [
        *master(),
        "PET_NPROC_PER_NODE",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_BACKEND",
        "PET_NNODES",
        "PET_MAX_RESTARTS",
        "PET_RDZV_ID",
        "PET_RDZV_CONF",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
    ]


@st.composite
def jobs(draw: st.DrawFn) -> PyTorchJob:
    """Any shape of job that the rules admit."""
    low, high = sorted(draw(st.tuples(st.integers(1, 9), st.integers(1, 9))))
    elastic = draw(st.none() | st.just({"minReplicas": low, "maxReplicas": high, "rdzvId": "run"}))
    return full_job(
        master=draw(st.sampled_from([None, 1])),
        workers=draw(st.integers(1, 9)),
        nprocPerNode=draw(st.sampled_from([None, "auto", "cpu", "gpu", "1", "8"])),
        elasticPolicy=elastic,
    )


@settings(deadline=None)
@given(jobs())
def test_what_the_plan_writes_the_agent_reads_back(job: PyTorchJob) -> None:
    envs = [build_env(job, each, OPTIONS) for each in wanted(job)]
    assert [ReplicaEnv.from_env(env.to_env()) for env in envs] == envs


@settings(deadline=None)
@given(jobs())
def test_ranks_are_0_to_n_or_nobody_has_one(job: PyTorchJob) -> None:
    ranks = [build_env(job, each, OPTIONS).rank for each in wanted(job)]
    assert ranks in (list(range(len(ranks))), [None] * len(ranks))
