"""How a member treats values in the round's store that are missing, foreign or invalid."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import agreement
from pytorchjob_agent.rendezvous.agreement import NOTE_LIMIT, Heard, MemberStanding, PeerHeartbeats
from pytorchjob_agent.rendezvous.signed_store import SignedStore, next_secret
from tests.agent.rendezvous.stores import Store, others_still_for

ZERO = Assigned(RoundId(3, 7), 0, 3, 0, 3, "10.0.0.1", 1000, 4, secret="5ec2e7")
PLACES = [replace(ZERO, rank=rank, first_rank=rank) for rank in range(3)]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def members(store: Store) -> list[SignedStore]:
    made = [SignedStore(store, place) for place in PLACES]
    agreement.prepare(made[0])
    return made


def exchange(heartbeats: PeerHeartbeats, store: SignedStore, now: float) -> None:
    heartbeats.exchange(store, lambda: now)


def test_a_peer_that_was_heard_two_seconds_ago_is_not_reported(members: list[SignedStore]) -> None:
    rank_1 = PeerHeartbeats(PLACES[1], 100.0)
    exchange(rank_1, members[1], 100.0)
    assert rank_1.heard(101.5) == Heard((0,), (15,), PLACES[1].round)
    assert rank_1.heard(102.0) == Heard()


def test_a_member_is_silent_from_the_beginning_until_it_is_heard() -> None:
    assert PeerHeartbeats(ZERO, 100.0).silence(103.0) == 3.0


@pytest.mark.parametrize("garbage", [b"", b"0 1 1", b"x" * 100], ids=["empty", "no proof", "noise"])
def test_a_counter_that_is_not_a_members_is_no_sign_of_life_and_hides_none(
    store: Store, members: list[SignedStore], garbage: bytes
) -> None:
    rank_0, rank_1 = PeerHeartbeats(ZERO, 100.0), PeerHeartbeats(PLACES[1], 100.0)
    store["heartbeat/1"] = store["heartbeat/2"] = garbage
    exchange(rank_0, members[0], 101.0)
    exchange(rank_1, members[1], 101.1)
    exchange(rank_0, members[0], 102.0)
    assert rank_0.heard(102.0) == Heard((1,), (10,), PLACES[0].round), "its first counter follows what was no counter"
    store["heartbeat/1"] = garbage
    exchange(rank_0, members[0], 103.0)
    exchange(rank_1, members[1], 103.1)
    exchange(rank_0, members[0], 104.0)
    assert rank_0.heard(104.0) == Heard((1,), (10,), PLACES[0].round)


def test_a_member_that_writes_a_word_is_not_heard(members: list[SignedStore]) -> None:
    rank_0 = PeerHeartbeats(ZERO, 100.0)
    members[1].write("heartbeat/1", "many")
    exchange(rank_0, members[0], 101.0)
    members[1].write("heartbeat/1", "1 0")
    exchange(rank_0, members[0], 102.0)
    assert rank_0.heard(102.0) == Heard((1,), (10,), PLACES[0].round)


@pytest.mark.parametrize(
    ("key", "writer", "agreed"),
    [
        pytest.param("go", 0, True, id="rank 0 opens the round"),
        pytest.param("go", 1, False, id="another member cannot open it"),
    ],
)
def test_only_rank_0_opens_the_next_round(members: list[SignedStore], key: str, writer: int, agreed: bool) -> None:
    members[writer].write(key, '["10.0.0.9", 2009]')
    assert (agreement.agree(members[2]) is not None) is agreed


def test_another_member_cannot_prove_that_the_store_is_the_rounds(store: Store) -> None:
    SignedStore(store, PLACES[1]).write("opened", "1")
    member = SignedStore(store, PLACES[2])
    assert not agreement.is_prepared(member)


def test_rank_0_does_not_open_a_round_with_the_address_of_another_member(members: list[SignedStore]) -> None:
    for rank in (1, 2):
        agreement.offer(members[rank], f"10.0.0.{rank}", 2000 + rank, restarts=4)
    members[1].write("again/0", '["10.0.0.6", 6666]')
    assert agreement.agree(members[0]) is None


def test_older_agents_say_no_restarts(members: list[SignedStore]) -> None:
    for rank in range(3):
        members[rank].write(f"again/{rank}", f'["10.0.0.{rank}", {2000 + rank}]')
    agreed = [agreement.agree(member) for member in members]
    assert [each and each.restarts for each in agreed] == [ZERO.restarts + 1] * 3


def test_the_next_rounds_secret_is_of_that_round(members: list[SignedStore]) -> None:
    members[0].write("go", '["10.0.0.9", 2009]')
    agreed = agreement.agree(members[1])
    assert agreed is not None
    assert agreed.secret == next_secret(ZERO.secret, RoundId(3, 7, 1))
    assert agreed.secret != next_secret(ZERO.secret, RoundId(3, 7, 2))


@pytest.mark.parametrize("port", [1, 65535])
def test_any_port_is_a_place(members: list[SignedStore], port: int) -> None:
    members[0].write("go", f'["10.0.0.9", {port}]')
    agreed = agreement.agree(members[1])
    assert agreed is not None
    assert agreed.master_port == port


@pytest.mark.parametrize(
    "place",
    [
        pytest.param('["10.0.0.9", 0]', id="port 0"),
        pytest.param('["10.0.0.9", 65536]', id="a port beyond all ports"),
        pytest.param('["10.0.0.9", "2009"]', id="a port in words"),
        pytest.param("[9, 2009]", id="an address that is a number"),
    ],
)
def test_what_is_not_a_place_is_refused(members: list[SignedStore], place: str) -> None:
    members[0].write("go", place)
    with pytest.raises(ValueError, match="is not an address and a port"):
        agreement.agree(members[1])


def test_a_counter_that_rank_0_reads_for_the_first_time_is_no_sign_of_life(members: list[SignedStore]) -> None:
    rank_0, rank_1 = PeerHeartbeats(ZERO, 100.0), PeerHeartbeats(PLACES[1], 100.0)
    exchange(rank_1, members[1], 100.1)
    exchange(rank_0, members[0], 101.0)
    assert rank_0.heard(101.0) == Heard()


def test_at_first_the_workers_move() -> None:
    assert PeerHeartbeats(ZERO, 100.0).standing == MemberStanding(0.0)


def still(member: PeerHeartbeats, store: SignedStore, seconds: float, times: int = 1) -> None:
    """Report that the workers have been still for these seconds."""
    member.standing = MemberStanding(seconds)
    for _ in range(times):
        exchange(member, store, 100.5)


def test_a_report_of_still_workers_counts_from_the_first_read_and_for_its_time(members: list[SignedStore]) -> None:
    rank_0, rank_1, rank_2 = (PeerHeartbeats(place, 100.0) for place in PLACES)
    still(rank_1, members[1], 200.0)
    still(rank_2, members[2], 300.0)
    exchange(rank_0, members[0], 101.0)
    assert [others_still_for(rank_0, now) for now in (101.0, 105.75, 106.0)] == [200.0, 200.0, 0.0]


def test_each_members_reports_are_compared_with_its_own(members: list[SignedStore]) -> None:
    rank_0, rank_1, rank_2 = (PeerHeartbeats(place, 100.0) for place in PLACES)
    still(rank_1, members[1], 200.0, times=5)
    still(rank_2, members[2], 300.0)
    exchange(rank_0, members[0], 101.0)
    still(rank_1, members[1], 210.0)
    still(rank_2, members[2], 310.0)
    exchange(rank_0, members[0], 104.0)
    assert others_still_for(rank_0, 107.0) == 210.0


def test_rank_0_learns_of_the_control_plane_from_each_member(members: list[SignedStore]) -> None:
    rank_0, rank_1 = PeerHeartbeats(ZERO, 100.0), PeerHeartbeats(PLACES[1], 100.0)
    rank_1.control_plane.own_at = 150.0
    for now in (151.0, 152.0):
        exchange(rank_1, members[1], now - 0.5)
        exchange(rank_0, members[0], now)
    assert rank_0.control_plane.seconds(160.0) == 11.0, "2 s before the read at 151"


@pytest.mark.parametrize(
    ("rest", "heard"),
    [
        pytest.param("9" * 16, (1,), id="a number"),
        pytest.param("9" * 17, (), id="a number that is too long"),
        pytest.param(f"1 1 {'1' * NOTE_LIMIT}", (1,), id="a note"),
        pytest.param(f"1 1 {'1' * (NOTE_LIMIT + 60)}", (), id="a note that is too long"),
    ],
)
def test_a_heartbeat_has_a_longest_form(members: list[SignedStore], rest: str, heard: tuple[int, ...]) -> None:
    rank_0 = PeerHeartbeats(ZERO, 100.0)
    for number in (1, 2):
        members[1].write("heartbeat/1", f"{number} {rest}")
        exchange(rank_0, members[0], 100.0 + number)
    assert rank_0.heard(102.0).ranks == heard
