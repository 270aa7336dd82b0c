"""Connections without an accepted hello: which one goes if there are too many."""

import random
from collections import Counter

import pytest

from pytorchjob_agent.contract.unauthenticated import EntryStage, Shares, Unauthenticated, group

FOUR = dict.fromkeys(EntryStage, 4)


@pytest.mark.parametrize(
    ("arrivals", "displaced"),
    [
        pytest.param(["a1", "a2", "a3", "a4", "a5"], ["a1"], id="one address: the oldest"),
        pytest.param(["b1", "a1", "a2", "a3", "b2"], ["a1"], id="the oldest of the address that has most"),
        pytest.param(["b1", "a1", "a2", "a3", "a4", "a5", "a6"], ["a1", "a2", "a3"], id="a flood displaces itself"),
        pytest.param(["a1", "b1", "c1", "d1", "e1"], ["a1"], id="equal shares: the oldest"),
        pytest.param(["a1", "a2", "b1", "c1", "d1", "e1"], ["a1", "b1"], id="then shares are equal"),
    ],
)
def test_a_full_stage_displaces(arrivals: list[str], displaced: list[str]) -> None:
    pool: Unauthenticated[str] = Unauthenticated(FOUR)
    found = [pool.add(name, name[0]) for name in arrivals]
    assert [name for name in found if name] == displaced
    assert len(pool) == 4
    assert pool.displaced == len(displaced)


def test_silent_peers_displace_none_that_makes_progress() -> None:
    pool: Unauthenticated[str] = Unauthenticated(FOUR)
    pool.add("agent", "a")
    assert pool.advance("agent", EntryStage.STARTED) is None
    for number in range(100):
        assert pool.add(f"silent {number}", "a") != "agent"
    assert pool.advance("agent", EntryStage.COSTLY) is None
    assert pool.stage("agent") is EntryStage.COSTLY
    assert len(pool) == 5


def test_a_connection_that_is_gone_displaces_nothing() -> None:
    pool: Unauthenticated[str] = Unauthenticated(FOUR)
    for name in ("a1", "a2", "a3", "a4"):
        pool.add(name, "a")
    assert pool.remove("a1")
    assert not pool.remove("a1")
    assert pool.advance("a1", EntryStage.COSTLY) is None
    assert pool.add("a5", "a") is None


def test_a_process_without_descriptors_closes_the_least_advanced() -> None:
    pool: Unauthenticated[str] = Unauthenticated(FOUR)
    assert pool.displace() is None
    for name in ("a1", "b1", "b2"):
        pool.add(name, name[0])
    pool.advance("b1", EntryStage.STARTED)
    assert [pool.displace() for _ in range(4)] == ["a1", "b2", "b1", None]


def test_shares_are_counted_as_a_slow_count_does() -> None:
    chance, shares, items = random.Random(7), Shares[int](), list[tuple[str, int]]()
    for number in range(3000):
        if items and chance.random() < 0.45:
            shares.remove(*items.pop(chance.randrange(len(items))))
        else:
            items.append((chance.choice("abcdef"), number))
            shares.add(*items[-1])
        assert len(shares) == len(items)
        if items:
            most = max(Counter(address for address, _ in items).values())
            goes = shares.first_to_go()
            address = next(address for address, item in items if item == goes)
            own = [item for other, item in items if other == address]
            assert (goes, len(own)) == (own[0], most)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:0:ffff::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_addresses_of_one_machine_count_together(first: str, second: str, same: bool) -> None:
    assert (group(first) == group(second)) is same
