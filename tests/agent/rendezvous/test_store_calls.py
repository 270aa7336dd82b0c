"""Calls of a store whose host may be lost: the agent goes on, and another thread waits."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.membership import Membership
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from pytorchjob_agent.rendezvous.store_calls import StoreCalls
from tests.waiting import until


class LostHost:
    """A store whose host does not answer until `answers` is set."""

    def __init__(self) -> None:
        self.answers, self.calls, self.returned = threading.Event(), 0, 0

    def set(self, key: str, value: str) -> None:
        self.check([key])

    def check(self, keys: list[str]) -> bool:
        self.calls += 1
        self.answers.wait(20)
        self.returned += 1
        return False


@pytest.fixture
def host() -> Iterator[LostHost]:
    found = LostHost()
    yield found
    found.answers.set()


def test_a_call_that_blocks_is_made_once_and_has_its_result_later(host: LostHost) -> None:
    calls = StoreCalls()
    assert [calls.ask("agree", lambda: host.check(["go"])) for _ in range(3)] == [None, None, None]
    assert until(lambda: host.calls == 1)
    host.answers.set()
    assert until(lambda: calls.ask("agree", lambda: host.check(["go"])) is False)


def test_calls_of_another_name_do_not_wait_for_it(host: LostHost) -> None:
    calls = StoreCalls()
    assert calls.ask("agree", lambda: host.check(["go"])) is None
    assert until(lambda: calls.ask("offer", lambda: 7)) == 7


def test_after_a_new_round_the_calls_of_the_last_one_are_dropped(host: LostHost) -> None:
    calls = StoreCalls()
    assert calls.ask("agree", lambda: host.check(["go"])) is None
    calls.forget()
    assert until(lambda: calls.ask("agree", lambda: 7)) == 7


def test_what_a_call_raises_reaches_the_caller() -> None:
    def fail() -> None:
        raise RuntimeError("connection reset")

    with pytest.raises(RuntimeError, match="connection reset"):
        until(lambda: StoreCalls().ask("offer", fail), 5)
    with pytest.raises(RuntimeError, match="connection reset"):
        StoreCalls().wait(fail, lambda: False)


def test_a_call_ends_with_its_round(host: LostHost) -> None:
    with pytest.raises(RuntimeError, match="its round has ended"):
        StoreCalls().wait(lambda: host.check(["go"]), lambda: host.calls > 0)
    assert host.returned == 0


@pytest.mark.torch
def test_a_member_that_waits_for_a_round_does_not_wait_for_the_lost_host_of_the_last_one(host: LostHost) -> None:
    client = SimpleNamespace(restarts=0)
    membership = Membership(client, "127.0.0.1", 1.0)  # type: ignore[arg-type]
    membership.assigned = Assigned(RoundId(1, 1), 1, 2, 1, 2, "127.0.0.1", 1, 0)
    membership._peers = SignedStore(host, membership.assigned)  # type: ignore[arg-type]
    assert membership._agree() is None
    assert membership._offer(1234) is False
    assert membership.all_done() is False
    assert until(lambda: host.calls == 3)
    assert host.returned == 0, "each of the calls still waits, in a thread of its own"
