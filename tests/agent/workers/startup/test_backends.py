"""The order of calls of torch's interfaces with a backend that torch revokes, by a stand-in for NCCL and its GPU.

A torch of another process group would not come back by itself with what is worth nothing, as NCCL does.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from pytorchjob_agent.workers.startup.pytorchjob_backends import BACKENDS, Gloo, Nccl, choose

pytestmark = pytest.mark.torch


class Backend:
    """What torch tells of a communicator."""

    def __init__(self) -> None:
        self.error, self.aborts = "SUCCESS", 0

    def abort(self) -> None:
        self.aborts += 1

    def get_error(self) -> Any:
        return SimpleNamespace(name=self.error)


class C10d:
    """torch's module, with a default group of two ranks of which the other one does as this one does."""

    def __init__(self, supported: bool = True) -> None:
        self.backend, self.formed, self.values = Backend(), list[tuple[int, list[str]]](), dict[str, bytes]()
        self.group = SimpleNamespace(
            supports_reconfigure=supported,
            bound_device_id=None,
            rank=lambda: 0,
            size=lambda: 2,
            _get_backend=lambda _: self.backend,
        )
        self.after = lambda: None

    def _get_default_group(self) -> Any:
        return self.group

    def _get_default_store(self) -> Any:
        def publish(key: str, value: str) -> None:
            self.values |= {key: value.encode(), key[:-1] + "1": b"other"}

        return SimpleNamespace(set=publish, wait=lambda *_: None, get=self.values.__getitem__)

    def _get_reconfigure_handle(self) -> str:
        return "own"

    def _reconfigure(self, uuid: int, handles: list[str], timeout: Any) -> Any:
        self.formed.append((uuid, handles))
        return SimpleNamespace(wait=lambda: None)

    def all_reduce(self, tensor: Any) -> None:
        tensor.mul_(2)
        self.after()


@pytest.fixture
def c10d() -> C10d:
    return C10d()


def nccl(c10d: C10d) -> Nccl:
    made = Nccl(c10d, c10d.all_reduce)
    made.begin()
    return made


def test_the_worker_forms_the_group_the_first_time_with_a_number_of_its_own(c10d: C10d) -> None:
    for _ in range(2):
        nccl(c10d)
    assert [handles for _, handles in c10d.formed] == [["own", "other"]] * 2
    numbers = [number for number, _ in c10d.formed]
    assert len({*numbers}) == 2
    assert max(numbers) < 0, "changes are numbered from 1 on"


def test_a_barrier_sums_the_numbers_of_all(c10d: C10d) -> None:
    assert nccl(c10d).barrier([1, 0, 3]) == [2, 0, 6]


@pytest.mark.parametrize("how", ["this rank leaves while it waits", "torch has noticed a loss"])
def test_what_a_revoked_barrier_returns_is_worth_nothing(c10d: C10d, how: str) -> None:
    made = nccl(c10d)
    c10d.after = made.leave if "leaves" in how else lambda: setattr(c10d.backend, "error", "REMOTE_ERROR")
    with pytest.raises(dist.DistBackendError) as raised:
        made.barrier([1])
    assert made.has_lost(raised.value)
    assert c10d.backend.aborts == ("leaves" in how)


def test_after_the_group_is_formed_again_its_barriers_count(c10d: C10d) -> None:
    made = nccl(c10d)
    made.leave()
    made.form(1, ["own"], 0, 5.0)
    assert made.barrier([1]) == [2]
    assert not made.has_lost(RuntimeError("The size of tensor a must match"))


def test_a_torch_that_ignores_the_option_has_formed_the_group_itself() -> None:
    made = nccl(c10d := C10d(supported=False))
    assert not c10d.formed
    assert made.problem() == "BackendNotSupported"


@pytest.mark.parametrize(
    ("asked", "given", "revoked"),
    [
        pytest.param("nccl", {"backend": "nccl"}, True, id="asked for"),
        pytest.param("gloo,NCCL", {"backend": "NCCL"}, True, id="in any case"),
        pytest.param("", {"backend": "nccl"}, False, id="not asked for"),
        pytest.param("nccl", {"backend": "gloo"}, False, id="another backend"),
        pytest.param("nccl", {"backend": "cpu:gloo,cuda:nccl"}, False, id="two backends"),
        pytest.param("nccl", {}, False, id="none is named"),
        pytest.param("nccl", {"backend": "nccl", "enable_reconfigure": True}, False, id="the script forms it"),
    ],
)
def test_which_groups_are_formed_here(
    monkeypatch: pytest.MonkeyPatch, c10d: C10d, asked: str, given: dict[str, Any], revoked: bool
) -> None:
    monkeypatch.setenv(BACKENDS, asked)
    assert isinstance(choose(c10d, c10d.all_reduce, given), Nccl) == revoked
    assert Gloo.options == {}
