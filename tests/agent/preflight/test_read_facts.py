"""Reads this very machine; addresses are real sockets."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.preflight import read_facts
from pytorchjob_agent.preflight.facts import Endpoint, RunRequest, Torch


def master(port: int, rank: int) -> dict[str, str]:
    """The variables of one replica of two."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that is bound, but at which nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_the_machine_has_cores_an_interface_and_limits() -> None:
    machine = read_facts.limits()
    assert machine.cores >= 1
    assert "lo" in machine.interfaces
    assert machine.nofile is None or machine.nofile > 0


def test_facts_are_read_with_torchs_part_from_outside() -> None:
    facts = read_facts.facts(RunRequest("2"), {"RANK": "x", "MASTER_ADDR": "a"}, lambda: Torch("2.4.0"))
    assert (facts.torch.version, facts.nproc, facts.endpoint) == ("2.4.0", 2, None)
    assert "MASTER_PORT is missing" in facts.contract
    assert facts.clock.endswith("+00:00")


def test_a_master_that_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert read_facts.endpoint(master(port, 1)) == Endpoint("127.0.0.1", port)


@pytest.mark.parametrize(
    ("rank", "ours"), [pytest.param(0, True, id="the master"), pytest.param(1, False, id="a worker")]
)
def test_a_port_that_is_closed(rank: int, ours: bool, taken: int) -> None:
    found = read_facts.endpoint(master(taken, rank))
    assert found is not None
    assert (found.ours, "refused" in found.problem) == (ours, True)


@pytest.mark.parametrize(
    ("conf", "ours"),
    [
        pytest.param({}, True, id="an address of this machine"),
        pytest.param({"PET_RDZV_CONF": "is_host=0"}, False, id="is_host says no"),
        pytest.param({"PET_RDZV_CONF": "is_host=true"}, True, id="is_host says yes"),
    ],
)
def test_who_opens_an_elastic_meeting_place(conf: dict[str, str], ours: bool, taken: int) -> None:
    found = read_facts.endpoint({"PET_RDZV_ENDPOINT": f"127.0.0.1:{taken}"} | conf)
    assert found is not None
    assert found.ours == ours


@pytest.mark.parametrize(
    "env",
    [
        pytest.param({}, id="one pod"),
        pytest.param({"PET_RDZV_ENDPOINT": "localhost:0"}, id="a port that torch chooses"),
        pytest.param({"PET_NNODES": "x"}, id="variables that are broken"),
    ],
)
def test_nobody_to_meet(env: dict[str, str]) -> None:
    assert read_facts.endpoint(env) is None


def test_a_name_that_does_not_resolve() -> None:
    found = read_facts.endpoint({"PET_RDZV_ENDPOINT": "no-such-host.invalid:29400"})
    assert found is not None
    assert (found.problem != "", found.resolves) == (True, False)


@pytest.mark.parametrize(
    ("path", "writable"),
    [
        pytest.param("log", True, id="a file that would be made"),
        pytest.param("none/log", False, id="a folder that is not there"),
    ],
)
def test_where_the_last_words_go(path: str, writable: bool, tmp_path: Path) -> None:
    places = read_facts.places(
        {"PYTORCHJOB_TERMINATION_LOG": str(tmp_path / path), "TORCHELASTIC_ERROR_FILE": str(tmp_path)}
    )
    assert [(place.name, place.writable) for place in places] == [
        ("TMPDIR", True),
        ("PYTORCHJOB_TERMINATION_LOG", writable),
        ("TORCHELASTIC_ERROR_FILE", True),
    ]
