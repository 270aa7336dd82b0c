"""Ports of standalone runs."""

import os

import pytest

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.system.ports import holder, listen


def test_a_hundred_runs_at_once_have_a_hundred_ports() -> None:
    sockets = [listen(0) for _ in range(100)]
    assert len({sock.getsockname()[1] for sock in sockets}) == 100
    for sock in sockets:
        sock.close()


def test_a_port_that_is_taken_is_named_with_its_holder() -> None:
    with listen(0) as first:
        port = first.getsockname()[1]
        with pytest.raises(ContractError, match=rf"--master-port: {port} is taken by process {os.getpid()} \("):
            listen(port)


def test_a_port_is_free_again_at_once() -> None:
    with listen(0) as first:
        port = first.getsockname()[1]
    listen(port).close()


def test_a_holder_that_cannot_be_seen() -> None:
    with listen(0) as first:
        port = first.getsockname()[1]
    assert holder(port) == "another process"


@pytest.mark.parametrize("port", [pytest.param(-1, id="below"), pytest.param(65536, id="above")])
def test_what_is_no_port(port: int) -> None:
    with pytest.raises(ContractError, match=f"--master-port: {port} is not a port: expected a number from 1 to 65535"):
        listen(port)
