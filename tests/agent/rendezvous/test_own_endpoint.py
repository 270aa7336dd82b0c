"""The pod's credential: read from its file at each connection, and gone from the environment of children."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytorchjob_agent.contract.coordinator_endpoint import CoordinatorEndpoint
from pytorchjob_agent.contract.messages import TOKEN_LIMIT
from pytorchjob_agent.rendezvous import own_endpoint

VARIABLES = {
    "PYTORCHJOB_COORDINATOR": "coordinator:29600",
    "PYTORCHJOB_TOKEN_FILE": "/run/token",
    "PYTORCHJOB_JOB": "job",
    "PYTORCHJOB_POD": "pod-1",
    "PYTORCHJOB_INDEX": "1",
}


@pytest.fixture(autouse=True)
def pod(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a pod's first process."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    yield
    own_endpoint._taken = None


def endpoint(path: Path) -> CoordinatorEndpoint:
    return CoordinatorEndpoint("coordinator", 29600, str(path), "job", "pod-1", 1)


def test_once_it_is_read_children_inherit_no_credential() -> None:
    taken = own_endpoint.take()
    assert taken is not None
    assert taken.token_file == "/run/token"
    assert [name for name in os.environ if "TOKEN" in name and name.startswith("PYTORCHJOB_")] == []


def test_it_is_known_although_the_variable_is_gone() -> None:
    assert own_endpoint.take() == own_endpoint.take()


def test_a_second_environment_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    own_endpoint.take()
    monkeypatch.setenv("PYTORCHJOB_TOKEN_FILE", "/run/other")
    second = own_endpoint.take()
    assert second is not None
    assert second.token_file == "/run/other"


def test_without_a_coordinator_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    own_endpoint.take()
    monkeypatch.delenv("PYTORCHJOB_COORDINATOR")
    assert own_endpoint.take() is None


def test_each_connection_reads_the_file_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    first = own_endpoint.read_credential(endpoint(path))
    path.write_text("second\n")
    assert (first, own_endpoint.read_credential(endpoint(path))) == ("first", "second")


def test_a_file_of_any_size_is_read_within_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xff" * (2 * TOKEN_LIMIT))
    assert len(own_endpoint.read_credential(endpoint(path))) == TOKEN_LIMIT


def test_a_file_that_is_not_there_is_named_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"PYTORCHJOB_TOKEN_FILE: .*/token cannot be read: No such file"):
        own_endpoint.read_credential(endpoint(tmp_path / "token"))
