"""What members publish in the round's store, as the others read it."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.published import Awaited, Published
from pytorchjob_agent.rendezvous.signed_store import SignedStore

from .stores import Store

PLACE = Assigned(RoundId(1, 1), 0, 3, 0, 3, "127.0.0.1", 1, 0, secret="5ec2e7")


def number(rank: int, text: str) -> int:
    return 100 * rank + int(text)


def member(store: Store, rank: int, kind: str = "number") -> Published[int]:
    return Published(SignedStore(store, replace(PLACE, rank=rank)), kind, number)


@pytest.mark.parametrize(
    ("values", "read"),
    [
        pytest.param({}, {}, id="nothing is published"),
        pytest.param({1: "7"}, {1: 107}, id="one member has published"),
        pytest.param({1: "7", 2: "8"}, {1: 107, 2: 208}, id="both have"),
        pytest.param({1: "another form"}, {1: None}, id="another version of the agent is no silent member"),
    ],
)
def test_what_is_read(values: dict[int, str], read: dict[int, int | None]) -> None:
    store = Store()
    for rank, value in values.items():
        member(store, rank).write(value)
    member(store, 1, "another kind").write("5")
    assert member(store, 0).read([1, 2]) == read


def test_the_latest_value_counts() -> None:
    store = Store()
    for value in ("1", "2"):
        member(store, 1).write(value)
    assert member(store, 0).read([1]) == {1: 102}


def test_a_value_that_no_member_signed_is_awaited_further() -> None:
    store = Store()
    Published(SignedStore(store, replace(PLACE, rank=1, secret="guessed")), "number", number).write("7")
    awaited = Awaited(member(store, 0), [1], until=10.0)
    assert (awaited.over(0.0), awaited.silent, awaited.found) == (False, [1], [])


def test_each_member_is_awaited_until_it_has_published() -> None:
    store = Store()
    awaited = Awaited(member(store, 0), [1, 2], until=10.0)
    assert (awaited.over(0.0), awaited.silent, awaited.found) == (False, [1, 2], [])
    member(store, 2).write("8")
    assert (awaited.over(1.0), awaited.silent, awaited.found) == (False, [1], [208])
    member(store, 1).write("another form")
    assert (awaited.over(2.0), awaited.silent, awaited.found) == (True, [], [208])


def test_a_silent_member_is_awaited_for_a_bounded_time() -> None:
    store = Store()
    awaited = Awaited(member(store, 0), [1, 2], until=10.0)
    member(store, 2).write("8")
    assert [awaited.over(now) for now in (9.0, 10.0, 10.1)] == [False, False, True]
    assert (awaited.silent, awaited.found) == ([1], [208])


def test_a_member_is_read_once() -> None:
    """A large job would else read all values from rank 0 again and again."""
    store = Counted()
    awaited = Awaited(member(store, 0), [1, 2], until=10.0)
    member(store, 1).write("7")
    for now in (1.0, 2.0, 3.0):
        awaited.over(now)
    assert store.got == ["number/1"]


class Counted(Store):
    """Records which keys are read."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[str] = []

    def get(self, key: str) -> bytes:  # type: ignore[override]
        self.got.append(key)
        return super().get(key)
