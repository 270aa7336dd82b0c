"""The rendezvous of one node, with torch's own stores."""

from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("torch")
import torch.distributed
from torch.distributed.elastic.rendezvous import RendezvousParameters

from pytorchjob_agent.contract.reading import ContractError
from pytorchjob_agent.rendezvous import single_node

pytestmark = pytest.mark.torch
dist: Any = torch.distributed


def handler(port: int = 0) -> Any:
    return single_node.create(RendezvousParameters(single_node.BACKEND, f"127.0.0.1:{port}", "run", 1, 1))


def client(info: Any) -> Any:
    """Connect as a worker does."""
    master = info.bootstrap_store_info
    return dist.TCPStore(master.master_addr, master.master_port, is_master=False, timeout=timedelta(seconds=20))


def test_the_workers_find_the_store_of_the_agent() -> None:
    one = handler()
    info = one.next_rendezvous()
    client(info).set("word", "here")
    assert client(info).get("word") == b"here"
    assert (info.rank, info.world_size, one.use_agent_store) == (0, 1, True)
    assert one.shutdown()


@pytest.mark.parametrize("libuv", [pytest.param("1", id="libuv"), pytest.param("0", id="plain sockets")])
def test_a_round_starts_with_an_empty_store_on_the_same_port(libuv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_LIBUV", libuv)
    one = handler()
    ports = set()
    for _ in range(3):
        info = one.next_rendezvous()
        ports.add(info.bootstrap_store_info.master_port)
        assert not client(info).check(["stale"])
        client(info).set("stale", "x")
    assert len(ports) == 1
    one.shutdown()


def test_runs_at_once_have_stores_of_their_own() -> None:
    runs = [handler() for _ in range(8)]
    for _ in range(3):
        infos = [one.next_rendezvous() for one in runs]
        for number, info in enumerate(infos):
            client(info).set("run", str(number))
        assert [client(info).get("run") for info in infos] == [str(number).encode() for number in range(8)]
    for one in runs:
        one.shutdown()


def test_a_fixed_port_belongs_to_the_run_until_its_end() -> None:
    one = handler()
    port = one.next_rendezvous().bootstrap_store_info.master_port
    with pytest.raises(ContractError, match=f"--master-port: {port} is taken"):
        handler(port)
    one.shutdown()
    handler(port).shutdown()
