"""What members read from and write to the store of their round."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous import agreement
from pytorchjob_agent.rendezvous.agreement import Heard, MemberStanding, PeerHeartbeats
from pytorchjob_agent.rendezvous.signed_store import SignedStore
from tests.agent.rendezvous.stores import Store, others_still_for

ZERO = Assigned(RoundId(3, 7), 0, 3, 0, 6, "10.0.0.1", 1000, 4, secret="5ec2e7", zone="eu-1a")
PLACES = [replace(ZERO, rank=rank, first_rank=2 * rank) for rank in range(3)]


Members = list[SignedStore]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def members(store: Store) -> Members:
    made = [SignedStore(store, place) for place in PLACES]
    agreement.prepare(made[0])
    return made


def test_members_agree_once_all_of_them_have_offered_and_rank_0_opens_the_round(members: Members) -> None:
    for rank in (1, 2):
        agreement.offer(members[rank], f"10.0.0.{rank}", 2000 + rank, restarts=4 + rank)
    assert [agreement.agree(member) for member in members] == [None] * 3
    agreement.offer(members[0], "10.0.0.9", 2009, restarts=4)
    assert agreement.agree(members[1]) is None, "rank 0 has not opened it yet"
    agreed = [agreement.agree(member) for member in members]
    secrets = {place.secret for place in agreed if place is not None}
    assert len(secrets) == 1, "the next attempt's secret is the same for all"
    assert secrets.isdisjoint({ZERO.secret, ""}), "and a new one"
    reason, secret = "agreed on without the coordinator", secrets.pop()
    heard = 4 + 2  # by one of them alone
    changed = {
        "master_address": "10.0.0.9", "master_port": 2009, "restarts": heard + 1, "reason": reason, "secret": secret
    }  # fmt: skip
    assert agreed == [replace(place, round=RoundId(3, 7, 1), **changed) for place in PLACES]  # type: ignore[arg-type]


def test_rank_0_hears_whose_counter_moves_and_the_others_hear_rank_0(members: Members) -> None:
    """A counter that grows proves life since the read before, an answer since its request."""
    heartbeats = [PeerHeartbeats(place, 100.0) for place in PLACES]
    for now in (101.0, 102.0, 103.0, 104.0):
        for rank in (2, 1, 0) if now < 103 else (1, 0):
            heartbeats[rank].exchange(members[rank], lambda now=now: now)  # type: ignore[misc]
    heard = [Heard((1,), (11,), ZERO.round), Heard((0,), (1,), ZERO.round), Heard()]
    assert [heartbeat.heard(104.1) for heartbeat in heartbeats] == heard
    assert [heartbeat.silence(104.0) for heartbeat in heartbeats] == [1.0, 0.0, 2.0]


def test_an_old_sign_of_life_is_never_reported_as_a_new_one(members: Members) -> None:
    """Member 1 writes once more and dies. Rank 0 stood still for ten seconds, or its reads are late."""
    zero, one = (PeerHeartbeats(place, 100.0) for place in PLACES[:2])
    zero.exchange(members[0], lambda: 100.0)
    one.exchange(members[1], lambda: 100.1)
    zero.exchange(members[0], lambda: 110.0)
    assert zero.heard(110.0) == Heard(), "it may have died ten seconds ago"
    zero.exchange(members[0], lambda: 110.25)
    assert zero.heard(110.25) == Heard()


def test_an_answer_counts_from_its_request(members: Members) -> None:
    one, times = PeerHeartbeats(PLACES[1], 100.0), iter([101.0, 109.0])
    one.exchange(members[1], lambda: next(times))
    assert one.silence(109.0) == 8.0
    assert one.heard(109.0) == Heard()


def test_counters_that_nobody_has_written_yet_are_no_sign_of_life(members: Members) -> None:
    zero = PeerHeartbeats(ZERO, 100.0)
    zero.exchange(members[0], lambda: 100.2)
    assert zero.heard(100.2) == Heard()


def test_rank_0_of_a_large_round_reads_less_often() -> None:
    assert PeerHeartbeats(ZERO, 0.0).seconds < PeerHeartbeats(PLACES[1], 0.0).seconds
    assert PeerHeartbeats(replace(ZERO, size=4000), 0.0).seconds == 1.0


def test_a_request_for_a_restart_is_reported_once(members: Members) -> None:
    heartbeat = PeerHeartbeats(PLACES[1], 100.0)
    agreement.ask_for_restart(members[2], "boom " * 1000)
    assert [heartbeat.exchange(members[1], lambda: 101.0) for _ in range(2)] == [True, False]
    assert heartbeat.restart == ("boom " * 1000)[:1024]


def exchange_all(heartbeats: list[PeerHeartbeats], members: Members, now: float) -> None:
    for rank in (2, 1, 0):
        heartbeats[rank].exchange(members[rank], lambda: now)


@pytest.mark.parametrize(
    ("still", "known"),
    [
        pytest.param((0.0, 0.0, 0.0), 0.0, id="all move"),
        pytest.param((500.0, 0.5, 130.9), 0.0, id="one moves"),
        pytest.param((0.0, 140.0, 130.9), 130.0, id="the others are still"),
        pytest.param((0.0, float("inf"), 130.0), 130.0, id="the workers of one have ended"),
        pytest.param((0.0, float("inf"), float("inf")), float("inf"), id="those of all others have"),
    ],
)
def test_rank_0_learns_for_how_long_all_others_have_been_still(
    members: Members, still: tuple[float, ...], known: float
) -> None:
    heartbeats = [PeerHeartbeats(place, 100.0) for place in PLACES]
    for heartbeat, seconds in zip(heartbeats, still, strict=True):
        heartbeat.standing = MemberStanding(seconds, "0.7.a1=2" if seconds else "")
    for now in (101.0, 102.0):
        exchange_all(heartbeats, members, now)
    assert [others_still_for(heartbeat, 102.5) for heartbeat in heartbeats] == [known, None, None]
    assert [other.note for other in heartbeats[0].others(102.5) or ()] == [
        "0.7.a1=2" * bool(each) for each in still[1:]
    ]
    assert heartbeats[0].heard(102.5).ranks == (1, 2), "and hears them as before"


def test_what_a_member_reported_of_its_workers_does_not_outlive_it(members: Members) -> None:
    heartbeats = [PeerHeartbeats(place, 100.0) for place in PLACES]
    for heartbeat in heartbeats:
        heartbeat.standing = MemberStanding(200.0)
    exchange_all(heartbeats, members, 101.0)
    for now in range(102, 110):
        heartbeats[1].exchange(members[1], lambda now=now: float(now))  # type: ignore[misc]
        heartbeats[0].exchange(members[0], lambda now=now: float(now))  # type: ignore[misc]
    assert others_still_for(heartbeats[0], 109.0) == 0.0, "member 2 may have moved since"


def test_a_member_without_such_a_report_is_taken_to_move(members: Members) -> None:
    zero, one = (PeerHeartbeats(place, 100.0) for place in PLACES[:2])
    one.standing = MemberStanding(200.0)
    for now in (101.0, 102.0):
        one.exchange(members[1], lambda now=now: now)  # type: ignore[misc]
        members[2].write("heartbeat/2", f"{now:.0f}")
        zero.exchange(members[0], lambda now=now: now)  # type: ignore[misc]
    assert others_still_for(zero, 102.0) == 0.0


@pytest.mark.parametrize(
    "value",
    [
        "",
        " 5",
        "5 x",
        "5 5 5",
        "5 5 5 g",
        "5 5 5 1 2",
        "5 5 5 " + "1" * 3000,
        "-5",
        "5 -5",
        "9" * 50,
        "1 " + "9" * 5000,
    ],
)
def test_a_heartbeat_that_no_agent_writes_is_none(members: Members, value: str) -> None:
    zero = PeerHeartbeats(ZERO, 100.0)
    for now in (101.0, 102.0):
        members[1].write("heartbeat/1", value)
        zero.exchange(members[0], lambda now=now: now)  # type: ignore[misc]
    assert zero.heard(102.0) == Heard()
    assert others_still_for(zero, 102.0) == 0.0


def test_a_member_that_is_alone_learns_that_no_other_rank_moves() -> None:
    assert PeerHeartbeats(replace(ZERO, size=1), 0.0).others(99.0) == ()


def test_a_member_that_is_alone_is_never_silent() -> None:
    assert PeerHeartbeats(replace(ZERO, size=1), 0.0).silence(99.0) == 0.0


def test_all_are_done_and_all_have_left(members: Members) -> None:
    for member in members[:2]:
        agreement.done(member)
        agreement.leave(member)
    assert (agreement.all_done(members[0]), agreement.all_left(members[0])) == (False, False)
    agreement.done(members[2])
    agreement.leave(members[2])
    assert (agreement.all_done(members[0]), agreement.all_left(members[0])) == (True, True)


def test_a_member_of_another_round_notices_that_the_store_is_not_its_own(members: Members) -> None:
    assert [agreement.is_prepared(member) for member in members] == [True] * 3
    for other in (replace(PLACES[1], round=RoundId(3, 6)), replace(PLACES[1], secret="other")):
        assert not agreement.is_prepared(SignedStore(members[0]._store, other))


def test_a_replayed_heartbeat_is_no_sign_of_life(store: Store, members: Members) -> None:
    zero, one = PeerHeartbeats(PLACES[0], 100.0), PeerHeartbeats(PLACES[1], 100.0)
    written = []
    for now in (101.0, 102.0):
        one.exchange(members[1], lambda now=now: now)  # type: ignore[misc]
        zero.exchange(members[0], lambda now=now: now)  # type: ignore[misc]
        written.append(store["heartbeat/1"])
    for now in range(103, 110):  # rank 1 is dead; an intruder repeats what it wrote
        store["heartbeat/1"] = written[now % 2]
        zero.exchange(members[0], lambda now=now: float(now))  # type: ignore[misc]
    assert zero.heard(110.0) == Heard()
    assert zero.silence(110.0) == 9.0, "it certainly lived at the read before the last change"
