"""Waiting for the address where the replicas meet."""

import os
import socket

import pytest

from pytorchjob_agent.system import network


class Flaky:
    """An address that answers after some failures."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    def __call__(self, host: str, port: int) -> None:
        self.left -= 1
        if self.left >= 0:
            raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(("own", "found"), [(None, "timeout:1 attempts:2"), ("timeout:7", "timeout:7")])
def test_a_dead_name_server_costs_little_unless_the_user_wants_it_so(
    monkeypatch: pytest.MonkeyPatch, own: str | None, found: str
) -> None:
    monkeypatch.setenv("RES_OPTIONS", own or "")
    if own is None:
        monkeypatch.delenv("RES_OPTIONS")
    network.shorten_name_lookups()
    assert os.environ["RES_OPTIONS"] == found


def test_a_name_that_comes_late_is_waited_for() -> None:
    network.wait_until(Flaky(2), "x-master-0.x", 23456, timeout=30)


def test_a_name_that_never_comes_is_named() -> None:
    with pytest.raises(network.UnreachableError, match=r"x-master-0.x:23456 was not reached within 0.2 s.*not known"):
        network.wait_until(Flaky(1000), "x-master-0.x", 23456, timeout=0.2)


def test_a_port_that_listens_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        network.wait_until(network.connect, "127.0.0.1", server.getsockname()[1], timeout=30)


def test_the_own_address_is_an_ip() -> None:
    assert network.own_address("127.0.0.9", 0) == "127.0.0.1"


def test_without_a_name_server_it_is_the_address_on_the_default_route() -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    found = network.own_address("x-coordinator.x", 1, unknown)
    if found is not None:  # a machine without any network has none
        with socket.socket(socket.AF_INET6 if ":" in found else socket.AF_INET) as server:
            server.bind((found, 0))
