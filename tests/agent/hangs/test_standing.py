"""For how long a job has been still, by what its members tell."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_agent.hangs.standing import RankStanding, job_still_for, note, read_note
from pytorchjob_agent.rendezvous.agreement import _NOTE, MemberStanding

MOVES, RESTS = RankStanding(), RankStanding(still=150.0)


def member(*ranks: RankStanding) -> MemberStanding:
    return MemberStanding(min(rank.still for rank in ranks), note(ranks))


def at(number: int, still: float = 0.0, unmoved: float = 140.0, group: str = "a") -> RankStanding:
    """A rank that has begun so many collectives of a group, and none since."""
    return RankStanding(still, unmoved, [(group, number)])


@pytest.mark.parametrize(
    ("own", "others", "seconds"),
    [
        pytest.param([RESTS], None, 0.0, id="nothing is known of the others"),
        pytest.param([RESTS], [], 150.0, id="there are no others"),
        pytest.param([RESTS], [MemberStanding(130.0)], 130.0, id="the least"),
        pytest.param([RESTS], [MemberStanding()], 0.0, id="one moves"),
        pytest.param([RESTS], [MemberStanding(inf)], 150.0, id="one has ended"),
        pytest.param([at(7)], [member(at(6, still=130.0))], 130.0, id="one polls for a rank that rests"),
        pytest.param([at(7)], [member(at(6))], 0.0, id="one polls for a rank that works: it may evaluate or save"),
        pytest.param([at(7)], [member(at(7, still=130.0))], 0.0, id="both have begun the same: it may go on alone"),
        pytest.param([at(6, still=130.0)], [member(at(7)), member(at(7))], 130.0, id="the others poll for this one"),
        pytest.param([at(7, group="b")], [member(at(6, still=130.0))], 0.0, id="it polls in a group of its own"),
        pytest.param(
            [RankStanding(0.0, 140.0, [("a", 7), ("b", 2)]), RankStanding(0.0, 139.0, [("b", 3)])],
            [member(at(6, still=130.0)), member(at(2, still=135.0, group="b"))],
            130.0,
            id="in two groups",
        ),
        pytest.param([at(7)], [MemberStanding(130.0)], 0.0, id="a member that says nothing of its collectives"),
        pytest.param([at(7)], [MemberStanding(130.0, "0.x")], 0.0, id="a broken note"),
    ],
)
def test_for_how_long_no_rank_has_made_progress(
    own: list[RankStanding], others: list[MemberStanding] | None, seconds: float
) -> None:
    assert job_still_for(own, others) == seconds


RANKS = st.builds(
    RankStanding,
    st.just(inf) | st.integers(0, 10**6).map(float),
    st.integers(0, 10**6).map(float),
    st.lists(st.tuples(st.from_regex(r"[0-9a-f]{8}", fullmatch=True), st.integers(0, 10**9)), max_size=4),
)


@given(st.lists(RANKS, min_size=1, max_size=8))
def test_a_note_says_what_it_was_made_of(ranks: list[RankStanding]) -> None:
    text = note(ranks)
    assert read_note(text) == ranks
    assert _NOTE.fullmatch(text), "so a heartbeat carries it"


@given(st.text("0123456789abcdef.=|", max_size=60))
def test_what_no_member_writes_is_none_or_ranks(text: str) -> None:
    found = read_note(text)
    assert found is None or all(isinstance(rank, RankStanding) for rank in found)
