"""Which values count as written by a member of the round."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.rendezvous.signed_store import Signed, SignedStore, next_secret

from .test_agreement import Store

PLACE = Assigned(RoundId(3, 7), 1, 3, 2, 6, "10.0.0.1", 1000, 4, secret="5ec2e7")
KEY = "again/1"


def test_a_members_value_is_read_with_its_rank() -> None:
    store = Store()
    SignedStore(store, PLACE).write(KEY, "a value\nof two lines")
    reader = SignedStore(store, replace(PLACE, rank=2))
    assert reader.read(KEY) == reader.read(KEY, 1) == Signed(1, "a value\nof two lines")
    assert reader.read("again/2") is None


INVALID = {
    "nothing": b"",
    "garbage": b"\xff\x00" * 100,
    "a bare value": b"1",
    "a value without a proof": b"0" * 64 + b" 1 1",
    "a value with an endless rank": b"0" * 64 + b" " + b"9" * 5000 + b" 1",
    "a very long value": b"0" * 64 + b" 1 " + b"x" * 100_000,
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in INVALID.items()])
def test_a_value_that_no_member_writes_is_ignored_and_reported_once(data: bytes) -> None:
    reported: list[str] = []
    reader = SignedStore(Store({KEY: data}), PLACE, reported.append)
    assert [reader.read(KEY), reader.read(KEY), *reader.read_all([KEY], [1])] == [None] * 3
    assert not reader.has_all([KEY], [1])
    assert reported == [KEY]


@pytest.mark.parametrize(
    ("reader", "key", "rank"),
    [
        pytest.param(replace(PLACE, secret="other"), KEY, 1, id="another round's secret"),
        pytest.param(replace(PLACE, round=RoundId(3, 8)), KEY, 1, id="another round"),
        pytest.param(PLACE, "again/2", 1, id="another key"),
        pytest.param(PLACE, KEY, 2, id="another sender"),
    ],
)
def test_a_members_value_proves_nothing_for(reader: Assigned, key: str, rank: int) -> None:
    store = Store()
    SignedStore(store, PLACE).write(KEY, "1")
    store["again/2"] = store[KEY]
    assert SignedStore(store, reader).read(key, rank) is None
    assert SignedStore(store, PLACE).read(KEY, 1) == Signed(1, "1")


def test_the_secret_of_the_next_attempt_follows_from_the_present_one() -> None:
    first, second = RoundId(3, 7, 1), RoundId(3, 7, 2)
    assert next_secret("s", first) == next_secret("s", first)
    assert len({next_secret("s", first), next_secret("s", second), next_secret("t", first)}) == 3
    assert next_secret("", first) == "", "an operator of an older version gives no secret"
