"""What members read from and write to the store of their round."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import agreement
from pytorchjob_agent.rendezvous.agreement import PeerHeartbeats

ZERO = Assigned(RoundId(3, 7), 0, 3, 0, 6, "10.0.0.1", 1000, 4)
PLACES = [replace(ZERO, rank=rank, first_rank=2 * rank) for rank in range(3)]


class Store(dict[str, bytes]):
    """A store in memory."""

    def set(self, key: str, value: str) -> None:
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self[key] for key in keys]

    def multi_set(self, keys: list[str], values: list[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)


@pytest.fixture
def store() -> Store:
    made = Store()
    agreement.prepare(made, 3)
    return made


def test_members_agree_once_all_of_them_have_offered_and_rank_0_opens_the_round(store: Store) -> None:
    for place in PLACES[1:]:
        agreement.offer(store, place, f"10.0.0.{place.rank}", 2000 + place.rank)
    assert [agreement.agree(store, place) for place in PLACES] == [None] * 3
    agreement.offer(store, ZERO, "10.0.0.9", 2009)
    assert agreement.agree(store, PLACES[1]) is None, "rank 0 has not opened it yet"
    agreed = [agreement.agree(store, place) for place in PLACES]
    reason = "agreed on without the coordinator"
    assert agreed == [
        replace(place, round=RoundId(3, 7, 1), master_address="10.0.0.9", master_port=2009, restarts=5, reason=reason)
        for place in PLACES
    ]


def test_rank_0_hears_whose_counter_moves_and_the_others_hear_rank_0(store: Store) -> None:
    members = [PeerHeartbeats(place, 100.0) for place in PLACES]
    for now in (101.0, 102.0, 103.0, 104.0):
        for rank in (2, 1, 0) if now < 103 else (1, 0):
            members[rank].exchange(store, lambda now=now: now)  # type: ignore[misc]
    assert [member.heard(104.1) for member in members] == [(1,), (0,), ()]
    assert [member.silence(104.0) for member in members] == [0.0, 0.0, 2.0]


def test_a_request_for_a_restart_is_reported_once(store: Store) -> None:
    members = [PeerHeartbeats(place, 100.0) for place in PLACES]
    agreement.ask_for_restart(store, "boom " * 1000)
    assert [members[1].exchange(store, lambda: 101.0) for _ in range(2)] == [True, False]
    assert members[1].restart == ("boom " * 1000)[:1024]


def test_a_member_that_is_alone_is_never_silent() -> None:
    assert PeerHeartbeats(replace(ZERO, size=1), 0.0).silence(99.0) == 0.0


def test_all_are_done_and_all_have_left(store: Store) -> None:
    for rank in (0, 1):
        agreement.done(store, rank)
        agreement.leave(store, rank)
    assert (agreement.all_done(store, 3), agreement.all_left(store, 3)) == (False, False)
    agreement.done(store, 2)
    agreement.leave(store, 2)
    assert (agreement.all_done(store, 3), agreement.all_left(store, 3)) == (True, True)
