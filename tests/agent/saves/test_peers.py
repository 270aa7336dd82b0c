"""Which peers keep the copies of a member's saves, from the nodes and the zones of all members."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytorchjob_agent.contract.messages import RoundId
from pytorchjob_agent.saves.held_saves import HeldSave, Parts, SaveId
from pytorchjob_agent.saves.peers import Peer, targets


def peer(rank: int, node: str, directory: str = "", zone: str = "") -> Peer:
    return Peer(rank, "10.0.0.1", 1, node, directory or str(rank), zone=zone)


def members(nodes: str, zones: str) -> list[Peer]:
    """One member for each node; a space is an unknown zone."""
    return [peer(rank, node, zone=zone.strip()) for rank, (node, zone) in enumerate(zip(nodes, zones, strict=True))]


def ordered(all_: list[Peer], rank: int) -> list[int]:
    return [each.rank for each in targets(all_[rank], [*all_[:rank], *all_[rank + 1 :]])]


@pytest.mark.parametrize(
    ("nodes", "zones", "order"),
    [
        pytest.param("abc", "   ", [2, 0], id="the next rank first"),
        pytest.param("bba", "   ", [2, 0], id="another node first"),
        pytest.param("abb", "   ", [0, 2], id="another node before the next rank"),
        pytest.param("abc", "yyx", [2, 0], id="another zone first"),
        pytest.param("abc", "xyy", [0, 2], id="another zone before the next rank"),
        pytest.param("abbc", "xyyy", [0, 3, 2], id="then another node of the zone, then the own node"),
        pytest.param("abc", "yyy", [2, 0], id="there is one zone only"),
        pytest.param("abc", "yy ", [2, 0], id="nothing proves that an unknown zone is another one"),
        pytest.param("abc", "xy ", [0, 2], id="a known zone before an unknown one"),
        pytest.param("abc", "x y", [2, 0], id="the own zone is unknown"),
        pytest.param("ab", "xx", [0], id="the only peer, in the same zone"),
    ],
)
def test_who_keeps_the_copies_of_rank_1(nodes: str, zones: str, order: list[int]) -> None:
    assert ordered(members(nodes, zones), 1) == order


@pytest.mark.parametrize(
    ("zones", "keepers"),
    [
        pytest.param("xxyy", [2, 3, 0, 1], id="two zones"),
        pytest.param("xyxy", [1, 0, 3, 2], id="ranks that alternate"),
        pytest.param("xxyyzz", [2, 3, 4, 5, 0, 1], id="three zones"),
        pytest.param("xxyz", [2, 3, 0, 1], id="one zone has half of the members"),
        pytest.param("xxxxyy", [4, 5, 4, 5, 2, 3], id="one zone has more: the others share its copies"),
    ],
)
def test_no_member_keeps_more_copies_than_it_must(zones: str, keepers: list[int]) -> None:
    all_ = members("abcdefgh"[: len(zones)], zones)
    assert [ordered(all_, rank)[0] for rank in range(len(all_))] == keepers


places = st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["", "x", "y", "z"])), min_size=2, max_size=20)


@given(places)
def test_all_peers_are_asked_and_those_of_other_zones_and_nodes_first(given_: list[tuple[str, str]]) -> None:
    all_ = [peer(rank, node, zone=zone) for rank, (node, zone) in enumerate(given_)]
    for own in all_:
        found = targets(own, [each for each in all_ if each is not own])
        assert sorted(each.rank for each in found) == [each.rank for each in all_ if each is not own]
        tiers = [_tier(own, each) for each in found if each.node != own.node]
        first_of_nodes = tiers[: len({each.node for each in found} - {own.node})]
        assert first_of_nodes == sorted(first_of_nodes)


@given(places)
def test_each_node_keeps_a_copy_before_one_keeps_two(given_: list[tuple[str, str]]) -> None:
    all_ = [peer(rank, node, zone=zone) for rank, (node, zone) in enumerate(given_)]
    for own in all_:
        found = [each.node for each in targets(own, [each for each in all_ if each is not own])]
        nodes = set(found) - {own.node}
        assert set(found[: len(nodes)]) == nodes


@pytest.mark.parametrize(
    ("nodes", "zones", "keepers"),
    [
        pytest.param("abcd", "    ", [(1, 2), (2, 3), (3, 0), (0, 1)], id="a pod on each node"),
        pytest.param("aabbcc", "      ", [(2, 4), (3, 5), (4, 0), (5, 1), (0, 2), (1, 3)], id="two pods on each node"),
        pytest.param("abcdef", "xxyyzz", [(2, 4), (3, 5), (4, 0), (5, 1), (0, 2), (1, 3)], id="three zones"),
        pytest.param("aabcc", "xxyyy", [(3, 2), (4, 2), (0, 4), (1, 2), (0, 2)], id="two zones"),
    ],
)
def test_who_keeps_two_copies(nodes: str, zones: str, keepers: list[tuple[int, int]]) -> None:
    all_ = members(nodes, zones)
    assert [tuple(ordered(all_, rank)[:2]) for rank in range(len(all_))] == keepers


def _tier(own: Peer, other: Peer) -> int:
    """0: another zone, 1: another node, 2: the same node."""
    if own.zone and other.zone and own.zone != other.zone:
        return 0
    return 1 if own.node != other.node else 2


@given(st.lists(st.sampled_from("xyz"), min_size=2, max_size=20))
def test_copies_are_spread_evenly_over_the_peers(zones: list[str]) -> None:
    """One copy for each member, unless a zone has more than half of the members."""
    all_ = [peer(rank, str(rank), zone=zone) for rank, zone in enumerate(zones)]
    best = Counter(targets(own, [each for each in all_ if each is not own])[0].rank for own in all_)
    largest = max(Counter(zones).values())
    others = len(all_) - largest
    assert max(best.values()) <= (max(1, -(-largest // others)) if others else 1)


def test_what_a_member_publishes_comes_back_as_it_was() -> None:
    held = HeldSave(SaveId(RoundId(1, 2), 0, 3), 7, 2, "step-5", own=True)
    parts = Parts(RoundId(1, 2), 7, 3, "step-5", 0b101)
    own = Peer(3, "10.0.0.1", 4000, "node", "directory", (held,), "eu-1a", (held,), (parts,), "files", left=True)
    assert Peer.from_json(3, own.to_json()) == own.gathered()
    assert own.gathered().held_parts == (Parts(RoundId(1, 2), 3, 2, "step-5", 0b01, 0b01),)


LISTS = ("held", "durable", "parts", "held_parts")


def changed(**fields: object) -> str:
    """What a member publishes, with other fields."""
    return json.dumps([*{"place": ["a", 1, "n", "d", "", "", 0], **{key: [] for key in LISTS}, **fields}.values()])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        changed(place=["a", 0, "n", "d", "", "", 0]),
        changed(place=["a", 1, "n", "d", 5, "", 0]),
        changed(place=["a", 1, "n", "d"]),
        changed(held=[["x"]]),
        changed(held={}),
        changed(held=[[[1, 2], 0, 7, 5, 1, "", "", 0]]),
        changed(held=[[[1, 2, 0], 0, 2**60, 5, 1, "", "", 0]]),
        changed(held=[[[1, 2, 0], 0, 7, 5, 0, "", "", 0]]),
        changed(held=[[[1, 2, 0], 0, 7, 5, 1, "x" * 129, "", 0]]),
        changed(held=[[[1, 2, 0], 0, 7, 5, 1, "\ud800", "", 0]]),
        changed(parts=[[[1, 2, 0], 7, 2, "step-5", "f", "0"]]),
        changed(parts=[[[1, 2, 0], 7, 2, "step-5", "1", "2"]]),
        changed(parts=[[[1, 2, 0], 7, 2, "step-5", "1", 0]]),
        changed(held_parts=[[[1, 2, 0], 7, 2, "", "1", "0"]]),
        changed(held_parts=[[[1, 2, 0], 7, 1, "step-5", "1", "0"]]),
        "null",
    ],
)
def test_what_no_member_publishes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Peer.from_json(1, text)
