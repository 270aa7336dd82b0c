"""torch's rendezvous as the agent plugs into it, and the stores that rounds are made of."""

import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous import registry as rendezvous_registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from pytorchjob_agent import torch_compat

from .agents import Meeting, dist

pytestmark = pytest.mark.torch
SECONDS = timedelta(seconds=20)


# --- the handler


def test_a_handler_has_these_members() -> None:
    assert RendezvousHandler.__abstractmethods__ == {
        "get_backend",
        "next_rendezvous",
        "is_closed",
        "set_closed",
        "num_nodes_waiting",
        "get_run_id",
        "shutdown",
    }
    assert isinstance(RendezvousHandler.use_agent_store, property)


def test_what_a_rendezvous_returns() -> None:
    store = dist.HashStore()
    info = RendezvousInfo(store, 1, 2, RendezvousStoreInfo("10.0.0.1", 1234))
    assert (info.store, info.rank, info.world_size) == (store, 1, 2)
    where = info.bootstrap_store_info
    assert where is not None
    assert (where.master_addr, where.master_port) == ("10.0.0.1", 1234)


def test_a_handler_is_found_by_the_name_of_its_backend() -> None:
    name = "found-by-name"
    rendezvous_handler_registry.register(name, lambda parameters: Named(parameters))
    handler: Any = rendezvous_registry.get_rendezvous_handler(
        RendezvousParameters(backend=name, endpoint="h:1", run_id="r", min_nodes=1, max_nodes=2, join_timeout="7")
    )
    given = handler.parameters
    assert (given.backend, given.endpoint, given.run_id, given.min_nodes, given.max_nodes) == (name, "h:1", "r", 1, 2)
    assert (given.get("join_timeout"), given.get("else"), given.local_addr) == ("7", None, None)


class Named(Meeting):
    def __init__(self, parameters: RendezvousParameters) -> None:
        super().__init__()
        self.parameters = parameters

    def get_backend(self) -> str:
        return self.parameters.backend


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [("h:5", ("h", 5)), ("h", ("h", 9)), ("[fd00::1]:5", ("fd00::1", 5)), ("", ("localhost", 9))],
)
def test_an_endpoint_has_a_host_and_a_port(endpoint: str, expected: tuple[str, int]) -> None:
    assert parse_rendezvous_endpoint(endpoint, default_port=9) == expected


def test_errors_that_torchs_agent_knows() -> None:
    assert {error.__name__ for error in (RendezvousClosedError, RendezvousGracefulExitError)} <= set(
        dir(torch.distributed.elastic.rendezvous)
    )


# --- stores


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def client(port: int) -> Any:
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=SECONDS)


@pytest.mark.parametrize("where", ["by TCP", "in memory"])
def test_a_store_does_what_a_round_needs(where: str, listener: socket.socket) -> None:
    server = torch_compat.store_on(listener, timeout=SECONDS) if where == "by TCP" else dist.HashStore()
    store = dist.PrefixStore("round/7", server)
    store.set("word", "here")
    assert (store.get("word"), server.get("round/7/word")) == (b"here", b"here")
    assert (store.check(["word"]), store.check(["other"])) == (True, False)
    assert (store.add("count", 2), store.add("count", 3)) == (2, 5)
    assert store.compare_set("word", "here", "there") == b"there"
    assert store.compare_set("word", "here", "nowhere") == b"there"
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["a", "b"]) == [b"1", b"2"]
    store.wait(["a", "b"], SECONDS)
    assert store.delete_key("a")


def test_a_word_that_never_comes_is_an_error_in_time(listener: socket.socket) -> None:
    server = torch_compat.store_on(listener, timeout=SECONDS)
    with pytest.raises(RuntimeError):
        server.wait(["never"], timedelta(milliseconds=50))


def test_a_store_on_a_bound_socket_is_a_new_one_each_time(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    for _ in range(2):
        server = torch_compat.store_on(listener, timeout=SECONDS)
        assert server.port == port
        assert client(port).check(["stale"]) is False
        client(port).set("stale", "x")
        del server


def test_a_store_that_is_gone_is_a_runtime_error(listener: socket.socket) -> None:
    server = torch_compat.store_on(listener, timeout=SECONDS)
    peer = client(listener.getsockname()[1])
    del server
    listener.close()
    with pytest.raises(RuntimeError):
        peer.get("word")


def test_a_store_that_nobody_opened_is_a_runtime_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(RuntimeError):
        dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=1))
