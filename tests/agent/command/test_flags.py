"""What becomes of torchrun's flags: agreed with the job, overridden in one line, or refused in a sentence."""

import argparse
from typing import Any

import pytest

from pytorchjob_agent.command import flags
from pytorchjob_agent.command.flags import UsageError

JOB = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "x-master-0.x",
    "PET_MASTER_PORT": "23456",
    "RANK": "1",
    "MASTER_ADDR": "x-master-0.x",
    "MASTER_PORT": "23456",
}
FIELDS = "the replicas of pytorchReplicaSpecs, or elasticPolicy.minReplicas and maxReplicas"


@pytest.mark.parametrize(
    ("given", "env"),
    [
        pytest.param({}, {}, id="no flag"),
        pytest.param({"nproc_per_node": "8", "role": "trainer", "local_addr": "10.0.0.1"}, {}, id="honoured flags"),
        pytest.param({"nnodes": "2", "node_rank": "1"}, {}, id="v1's variables passed on: size and rank"),
        pytest.param(
            {"master_addr": "x-master-0.x", "master_port": "23456"}, {}, id="v1's variables passed on: master"
        ),
        pytest.param({"nnodes": "2:4"}, {"PET_NNODES": "2:4"}, id="the range of the job"),
        pytest.param({"max_restarts": "3"}, {"PET_MAX_RESTARTS": "3"}, id="the job's restarts"),
        pytest.param({"rdzv_conf": "join_timeout=60"}, {}, id="the time to join is the agent's"),
    ],
)
def test_a_flag_that_agrees_with_the_job_is_accepted_silently(given: dict[str, str], env: dict[str, str]) -> None:
    assert list(flags.overridden(given, JOB | env)) == []


@pytest.mark.parametrize(
    ("given", "env", "line"),
    [
        pytest.param(
            {"nnodes": "2"},
            {"PET_NNODES": "1:4"},
            f"--nnodes=2 has no effect in this job: {FIELDS}, decide (1:4)",
            id="a part of the job's range",
        ),
        pytest.param(
            {"max_restarts": "3"},
            {"PET_MAX_RESTARTS": "5"},
            "--max-restarts=3 has no effect in this job: elasticPolicy.maxRestarts decides (5)",
            id="another number of restarts",
        ),
        pytest.param(
            {"max_restarts": "3"},
            {},
            "--max-restarts=3 has no effect in this job: elasticPolicy.maxRestarts decides"
            " (unset: see restartPolicy and backoffLimit)",
            id="the job names no number of restarts",
        ),
        pytest.param(
            {"rdzv_id": "mine"},
            {},
            "--rdzv-id=mine has no effect in this job: the rendezvous has the job's uid as its id",
            id="an id",
        ),
        pytest.param(
            {"rdzv_conf": "last_call_timeout=9,join_timeout=9"},
            {},
            "--rdzv-conf=last_call_timeout=9,join_timeout=9 has no effect in this job:"
            " elasticPolicy.rdzvConf decides, except join_timeout",
            id="a setting of the rendezvous",
        ),
        pytest.param(
            {"node_rank": "0"}, {}, "--node-rank=0 has no effect in this job: each round assigns the ranks", id="a rank"
        ),
        pytest.param(
            {"master_addr": "other"},
            {},
            "--master-addr=other has no effect in this job: each round has its own master",
            id="a master",
        ),
        pytest.param(
            {"master_port": "1"},
            {},
            "--master-port=1 has no effect in this job: each round has its own port",
            id="a port",
        ),
        pytest.param(
            {"monitor_interval": "5.0"},
            {},
            "--monitor-interval=5.0 has no effect in this job: the agent notices the end of a worker at once",
            id="an interval",
        ),
    ],
)
def test_a_flag_that_another_value_overrides_is_named_with_it(
    given: dict[str, str], env: dict[str, str], line: str
) -> None:
    assert list(flags.overridden(given, JOB | env)) == [line]


@pytest.mark.parametrize("nnodes", ["3", "1", "1:4", "0", "two", "3:2"])
def test_a_number_of_nodes_that_contradicts_the_job_is_refused(nnodes: str) -> None:
    with pytest.raises(UsageError, match=f"^--nnodes={nnodes}: "):
        list(flags.overridden({"nnodes": nnodes}, JOB))


@pytest.mark.parametrize("name", sorted(flags.MEMBER))
def test_every_flag_that_does_not_decide_is_named(name: str) -> None:
    assert list(flags.overridden({name: "1:2" if name == "nnodes" else "9"}, {"PET_NNODES": "1:4"}))


def test_a_flag_that_a_standalone_run_does_not_honour_is_named() -> None:
    lines = list(flags.overridden_standalone({"rdzv_endpoint": "h:1", "nproc_per_node": "2"}))
    assert lines == ["--rdzv-endpoint=h:1 has no effect in this run: --standalone decides"]


def arguments(**given: Any) -> argparse.Namespace:
    """torchrun's defaults, and these arguments."""
    known = {"nnodes": "1", "nproc_per_node": "1", "rdzv_backend": "static", "master_port": None, "node_rank": 0}
    return argparse.Namespace(**{**known, "max_restarts": 0, "monitor_interval": 0.1, **given})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param({"master_port": 70000}, "--master-port=70000: expected a port from 0 to 65535", id="no port"),
        pytest.param({"master_port": -1}, "--master-port=-1: expected", id="a negative port"),
        pytest.param({"max_restarts": -1}, "--max-restarts=-1: expected 0 or more restarts", id="restarts"),
        pytest.param({"node_rank": -1}, "--node-rank=-1: expected 0 or more", id="a rank"),
        pytest.param({"monitor_interval": 0.0}, "--monitor-interval=0: expected", id="no interval"),
        pytest.param({"monitor_interval": float("nan")}, "--monitor-interval=nan: expected", id="no number"),
        pytest.param({"nproc_per_node": "0"}, "--nproc-per-node=0: expected at least 1", id="no process"),
        pytest.param({"nproc_per_node": "-2"}, "--nproc-per-node=-2: expected at least 1", id="fewer than none"),
        pytest.param({"nnodes": "1:2:3"}, "--nnodes=1:2:3: expected N or MIN:MAX", id="three numbers"),
    ],
)
def test_a_value_that_cannot_work_is_refused_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        flags.check(arguments(**given))
    assert str(error.value).startswith(sentence)


def test_values_that_work_pass() -> None:
    for given in ({}, {"master_port": 0}, {"master_port": 65535}, {"nproc_per_node": "gpu"}, {"nnodes": "1:3"}):
        flags.check(arguments(**given))


def test_a_static_rendezvous_has_one_size() -> None:
    flags.check_static(arguments(nnodes="2:2"))
    flags.check_static(arguments(nnodes="1:2", rdzv_backend="c10d"))
    with pytest.raises(UsageError, match=r"^--nnodes=1:2: the rendezvous static has a fixed number of nodes"):
        flags.check_static(arguments(nnodes="1:2"))
