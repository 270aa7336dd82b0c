"""The contract: what one side writes, the other reads back."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchjob_agent.contract.environment import RendezvousOptions, ReplicaEnv
from pytorchjob_agent.contract.reading import ContractError

WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._", min_size=1, max_size=20)
COUNT = st.integers(1, 2**31 - 1)
PORT = st.integers(1, 65535)


@st.composite
def replica_envs(draw: st.DrawFn) -> ReplicaEnv:
    """Any environment that the operator may write."""
    conf = st.lists(st.tuples(WORD, WORD), max_size=3).map(tuple)
    rdzv = draw(st.none() | st.builds(RendezvousOptions, WORD, PORT, WORD, st.none() | WORD, conf))
    low, high = sorted(draw(st.tuples(COUNT, COUNT)))
    master = draw(st.booleans())
    return ReplicaEnv(
        nnodes_min=low,
        nnodes_max=high,
        nproc_per_node=draw(st.none() | WORD),
        master_addr=draw(WORD) if master else None,
        master_port=draw(PORT) if master else None,
        world_size=draw(COUNT) if master else None,
        rank=draw(st.integers(0, 10**6)) if master else None,
        rdzv=rdzv,
        max_restarts=draw(st.none() | st.integers(0, 10**6)),
        standalone=draw(st.booleans()),
    )


@settings(deadline=None)
@given(replica_envs())
def test_what_the_operator_writes_the_agent_reads_back(env: ReplicaEnv) -> None:
    assert ReplicaEnv.from_env(env.to_env()) == env


SIMPLE = ReplicaEnv(2, 2, nproc_per_node="auto", master_addr="x-master-0.x", master_port=23456, world_size=2, rank=1)
ELASTIC = ReplicaEnv(
    1,
    3,
    nproc_per_node="2",
    rdzv=RendezvousOptions("x-worker-0", 29400, id="7", conf=(("is_host", "0"), ("read_timeout", "9"))),
    max_restarts=3,
    standalone=True,
)


@pytest.mark.parametrize(
    ("env", "names"),
    [
        pytest.param(
            SIMPLE,
            "PYTHONUNBUFFERED MASTER_PORT PET_MASTER_PORT MASTER_ADDR PET_MASTER_ADDR WORLD_SIZE RANK PET_NODE_RANK"
            " PET_NPROC_PER_NODE PET_NNODES",
            id="a job with a master has v1's variables in v1's order",
        ),
        pytest.param(
            ELASTIC,
            "PYTHONUNBUFFERED PET_NPROC_PER_NODE PET_RDZV_ENDPOINT PET_RDZV_BACKEND PET_NNODES PET_MAX_RESTARTS"
            " PET_RDZV_ID PET_RDZV_CONF PET_STANDALONE",
            id="an elastic job of workers has no master and no rank",
        ),
        pytest.param(
            ReplicaEnv(2, 2, nproc_per_node="auto"),
            "PYTHONUNBUFFERED PET_NPROC_PER_NODE PET_NNODES",
            id="workers alone without a policy get no address",
        ),
    ],
)
def test_the_variables_and_their_order(env: ReplicaEnv, names: str) -> None:
    assert list(env.to_env()) == names.split()


@pytest.mark.parametrize(
    ("env", "name", "value"),
    [
        pytest.param(SIMPLE, "PET_NNODES", "2", id="a fixed size is a number"),
        pytest.param(ELASTIC, "PET_NNODES", "1:3", id="an elastic size is a range"),
        pytest.param(
            replace(ELASTIC, nnodes_min=2, nnodes_max=2), "PET_NNODES", "2:2", id="an elastic size of one value too"
        ),
        pytest.param(ELASTIC, "PET_STANDALONE", "1", id="standalone is what torchrun can parse"),
        pytest.param(ELASTIC, "PET_RDZV_BACKEND", "c10d", id="the default backend is c10d"),
        pytest.param(ELASTIC, "PET_RDZV_ENDPOINT", "x-worker-0:29400", id="host and port"),
        pytest.param(ELASTIC, "PET_RDZV_CONF", "is_host=0,read_timeout=9", id="options joined by commas"),
    ],
)
def test_a_value(env: ReplicaEnv, name: str, value: str) -> None:
    assert env.to_env()[name] == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"MASTER_PORT": "http"}, "MASTER_PORT: 'http' is not", id="a port that is no number"),
        pytest.param({"MASTER_PORT": "70000"}, "from 1 to 65535", id="a port that is too big"),
        pytest.param({"RANK": "-1"}, "RANK: '-1'", id="a negative rank"),
        pytest.param({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE: '999", id="an enormous number"),
        pytest.param({"PET_NNODES": "3:1"}, "PET_NNODES: '3:1' has its minimum", id="a range upside down"),
        pytest.param({"PET_NNODES": "0"}, "from 1", id="no nodes"),
        pytest.param({"PET_RDZV_ENDPOINT": "host:x"}, "PET_RDZV_ENDPOINT", id="an endpoint without a number"),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "h:1", "PET_RDZV_CONF": "a"}, "PET_RDZV_CONF", id="an option without a value"
        ),
        pytest.param({"PET_STANDALONE": "yes"}, "expected 1 or 0", id="a switch that is a word"),
    ],
)
def test_a_broken_variable_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        ReplicaEnv.from_env(SIMPLE.to_env() | change)


def test_a_missing_half_of_the_master_is_named() -> None:
    env = SIMPLE.to_env()
    del env["MASTER_PORT"]
    with pytest.raises(ContractError, match="MASTER_PORT is missing"):
        ReplicaEnv.from_env(env)


def test_half_a_master_cannot_be_written() -> None:
    with pytest.raises(ContractError, match="set all four"):
        ReplicaEnv(2, 2, master_addr="x")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, ReplicaEnv(1, 1), id="no variables at all: one node"),
        pytest.param({"MASTER_PORT": "x", "RANK": "y"}, ReplicaEnv(1, 1), id="a user's own port without an address"),
        pytest.param(
            {"PET_RDZV_ENDPOINT": "host"},
            ReplicaEnv(1, 1, rdzv=RendezvousOptions("host", 29400)),
            id="an endpoint without a port has torchrun's",
        ),
    ],
)
def test_foreign_variables(env: dict[str, str], expected: ReplicaEnv) -> None:
    assert ReplicaEnv.from_env(env) == expected
