"""When a group counts as cut off from the control plane."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import agreement, contact
from pytorchjob_agent.rendezvous.agreement import PeerHeartbeats
from pytorchjob_agent.rendezvous.signed_store import SignedStore

from .test_agreement import PLACES, Store


class Group:
    """Three members that hear each other for a while, some of them the coordinator too."""

    def __init__(self) -> None:
        self.stores = [SignedStore(store, place) for store in (Store(),) for place in PLACES]
        agreement.prepare(self.stores[0])
        self.members = [PeerHeartbeats(place, 100.0) for place in PLACES]
        self.now = 100.0

    def train(self, seconds: int, in_contact: tuple[int, ...]) -> list[int]:
        """Let time pass; return for how many seconds each member knows of no contact, down to a multiple of 10.

        Reports are rounded to the safe side on their way, which makes a few seconds here.
        """
        for _ in range(seconds):
            self.now += 1.0
            for rank, member in enumerate(self.members):
                member.control_plane.own_at = self.now if rank in in_contact else 100.0
                member.exchange(self.stores[rank], lambda: self.now)
        return [int(member.control_plane.seconds(self.now)) // 10 * 10 for member in self.members]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_member_in_contact_is_enough_for_all(rank: int) -> None:
    assert Group().train(60, (rank,)) == [0, 0, 0]


def test_a_group_without_contact_counts_the_seconds_together() -> None:
    group = Group()
    group.train(30, (2,))
    assert group.train(60, ()) == [60, 60, 60]


def test_a_group_that_was_cut_off_stays_so_until_its_next_round() -> None:
    group = Group()
    group.train(60, ())
    members = [member.control_plane for member in group.members]
    assert [member.cut_off(group.now, 59.0) for member in members] == [True] * 3
    assert group.train(5, (0, 1, 2)) == [0] * 3
    assert [member.cut_off(group.now, 59.0) for member in members] == [True] * 3


def test_a_member_that_hears_no_peer_counts_alone() -> None:
    alone = PeerHeartbeats(replace(PLACES[0], size=1), 100.0)
    assert alone.control_plane.seconds(160.0) == 60.0


def test_a_replayed_report_of_contact_counts_once() -> None:
    group = Group()
    group.train(10, (0,))
    store = group.stores[0]._store
    old = store["contact"]  # type: ignore[index]
    for _ in range(60):
        group.now += 1.0
        store["contact"] = old  # type: ignore[index]
        group.members[1].control_plane.own_at = 100.0
        group.members[1].exchange(group.stores[1], lambda: group.now)
    assert group.members[1].control_plane.seconds(group.now) >= 60.0


@pytest.mark.parametrize("text", ["", "1", "1 2 3", "a b", "1 -1", "1 1.5", "1  2", f"1 {'9' * 17}", "\u0661 2"])
def test_what_no_member_writes_is_no_heartbeat(text: str) -> None:
    assert contact.read(text) is None


def test_a_heartbeat_is_read_as_it_was_written() -> None:
    assert contact.read(contact.write(7, 12)) == (7, 12)


def test_an_assignment_without_peers_has_no_others() -> None:
    place = Assigned(RoundId(1, 1), 0, 1, 0, 1, "10.0.0.1", 1, 0, secret="s")
    member = PeerHeartbeats(place, 100.0)
    store = SignedStore(Store(), place)
    agreement.prepare(store)
    member.exchange(store, lambda: 150.0)
    assert member.control_plane.seconds(150.0) == 50.0
