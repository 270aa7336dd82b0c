"""A member's reports: what has to be repeated, and what must not be."""

from typing import Any

import pytest

from pytorchjob_agent.contract.messages import Assigned, Done, Heartbeat, Hello, RoundId
from pytorchjob_agent.rendezvous.agreement import Heard
from pytorchjob_agent.rendezvous.membership import Membership
from pytorchjob_agent.rendezvous.session import Session
from pytorchjob_agent.rendezvous.signed_store import SignedStore

pytestmark = pytest.mark.torch


class Client:
    """Counts what the coordinator is told."""

    def __init__(self) -> None:
        self.session = Session(Hello("job", "pod", "token", 0, "127.0.0.1", 1, "i"), 0.0)
        self.updates = 0

    def update(self, change: Any) -> None:
        self.updates += 1
        change(self.session)


class Store:
    """A round's store whose host is away for the first writes."""

    def __init__(self, failures: int) -> None:
        self.failures, self.keys = failures, list[str]()

    def set(self, key: str, value: str) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("the store is away")
        self.keys.append(key)


def test_success_is_written_until_the_store_has_it_and_reported_once() -> None:
    client, store = Client(), Store(failures=2)
    membership = Membership(client, "127.0.0.1", 1.0)  # type: ignore[arg-type]
    membership.assigned = Assigned(RoundId(1, 1), 1, 2, 1, 2, "127.0.0.1", 1, 0)
    membership.store = store
    membership._peers = SignedStore(store, membership.assigned)  # type: ignore[arg-type]
    assert [membership.done(age) for age in (0.5, 1.5, 2.5)] == [False, False, True]
    assert store.keys == ["done/1"]
    assert client.updates == 1
    assert client.session.standing.then == (Done(RoundId(1, 1), 0.5),)


class PeerHeartbeats:
    """What the thread of that name heard."""

    def heard(self) -> Heard:
        return Heard((0,), (3,), RoundId(1, 1))


def test_a_heartbeat_names_the_round_in_which_its_peers_were_heard() -> None:
    membership = Membership(Client(), "127.0.0.1", 1.0)  # type: ignore[arg-type]
    assert membership.heartbeat() == Heartbeat()
    membership.heartbeats = PeerHeartbeats()  # type: ignore[assignment]
    assert membership.heartbeat() == Heartbeat(heard=(0,), heard_ages=(3,), heard_in=RoundId(1, 1))
