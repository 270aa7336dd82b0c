"""Whatever a message is built from, the other side reads it: texts of 100 KB, halves of characters, 10,000 ranks."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytorchjob_agent.contract.collectives import GroupPosition
from pytorchjob_agent.contract.fields import MAX_COUNT, cut
from pytorchjob_agent.contract.messages import (
    TRACEBACK_LIMIT,
    Checkpoint,
    Draining,
    Failed,
    FromAgent,
    Heartbeat,
    Hello,
    Hold,
    Message,
    ProtocolError,
    Refused,
    Restart,
    RoundId,
    Stop,
    ToAgent,
    read_from_agent,
    read_to_agent,
)

MISSING = ", ".join(map(str, range(10_000)))
UNITS = ["x", "\n", "\x00", '"', "ü", "世", "🔥", "\ud800", "rank 7, "]
TEXT = st.builds(lambda unit, times: unit * times, st.sampled_from(UNITS), st.integers(0, 100) | st.integers(0, 25_000))
WHOLE = st.integers(-(2**70), 2**70) | st.integers(0, 100)
ROUND = st.builds(RoundId, st.integers(0, 2**53), st.integers(0, MAX_COUNT), st.integers(0, MAX_COUNT))
RANKS = st.builds(lambda number, times: (number,) * times, WHOLE, st.integers(0, 20_000))
POSITIONS = st.lists(
    st.builds(GroupPosition, WHOLE, TEXT, WHOLE, st.booleans(), WHOLE, st.lists(TEXT, max_size=20).map(tuple)),
    max_size=80,
)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: WHOLE,
    int | None: st.none() | WHOLE,
    float: st.floats() | st.sampled_from([math.nan, math.inf, -math.inf]),
    bool: st.booleans(),
    RoundId: ROUND,
    RoundId | None: st.none() | ROUND,
    tuple[int, ...]: RANKS,
    tuple[GroupPosition, ...]: POSITIONS.map(tuple),
    tuple[str, ...]: st.lists(TEXT, max_size=12).map(tuple),
    Mapping[str, str | None]: st.dictionaries(TEXT, st.none() | TEXT, max_size=40),
    Mapping[str, float]: st.dictionaries(TEXT, st.floats() | WHOLE, max_size=20),
}
KINDS = [*get_args(FromAgent), *get_args(ToAgent)]


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: BY_TYPE[hints[field.name]] for field in fields(kind)})  # type: ignore[arg-type]


def read(message: Message) -> Message:
    line = message.to_line()
    assert line.count(b"\n") == 1
    assert len(line) <= message.line_limit
    return read_from_agent(line) if isinstance(message, get_args(FromAgent)) else read_to_agent(line)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_other_side_reads_every_message_that_can_be_built(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    found = read(message)
    assert type(found) is kind
    for field in fields(kind):  # type: ignore[arg-type]
        value = getattr(found, field.name)
        str(value).encode()  # halves of characters are gone
        sent = getattr(message, field.name)
        if isinstance(sent, RoundId | bool):
            assert value == sent, "what must not be changed is not changed"


@pytest.mark.parametrize(
    "message", [Restart(RoundId(1, 1), MISSING), Hold(MISSING), Stop(1, "a", MISSING), Refused(MISSING)]
)
def test_a_long_reason_is_cut_with_the_number_of_missing_characters(message: Message) -> None:
    found = read(message)
    text = getattr(found, "reason", "") if not isinstance(found, Stop | Refused) else found.message
    kept, _, count = text.rpartition("... (")
    assert MISSING.startswith(kept)
    assert int(count.removesuffix(" more characters)")) == len(MISSING) - len(kept)


def test_of_a_traceback_the_end_is_kept() -> None:
    found = read(Failed(RoundId(1, 1), 0, 0, 1, "boom", "x" * 50_000 + "ValueError: the end"))
    assert isinstance(found, Failed)
    assert found.traceback.endswith("ValueError: the end")
    assert found.traceback.startswith("(")
    assert len(found.traceback) == TRACEBACK_LIMIT


@pytest.mark.parametrize(
    ("message", "field", "value"),
    [
        (Heartbeat(step=-1), "step", 0),
        (Heartbeat(step=10**30), "step", 2**53),
        (Heartbeat(shown_step=10**30), "shown_step", 2**53),
        (Heartbeat(percent=250), "percent", 100),
        (Heartbeat(percent=-1), "percent", 0),
        (Heartbeat(remaining=-5), "remaining", 0),
        (Heartbeat(rate=math.inf), "rate", 1e299),
        (Heartbeat(rate=math.nan), "rate", 0.0),
        (Failed(RoundId(1, 1), 0, 0, -9, "killed"), "exit_code", 0),
        (Draining(math.inf), "seconds", 1e299),
        (Checkpoint(RoundId(1, 1), 2**60, math.nan), "seconds", 0.0),
    ],
    ids=str,
)
def test_a_number_beyond_its_bounds_becomes_the_bound(message: Message, field: str, value: object) -> None:
    assert getattr(read(message), field) == value


def test_a_hello_keeps_its_credential_when_its_versions_are_too_long() -> None:
    versions = {f"library {number}": "🔥" * 256 for number in range(32)}
    hello = Hello("job", "pod", "t" * 4096, 0, "10.0.0.1", 1, "first", versions=versions)
    found = read(hello)
    assert found == replace(hello, versions=found.versions)  # type: ignore[attr-defined]
    assert 0 < len(found.versions) < 32  # type: ignore[attr-defined]


@pytest.mark.parametrize("parts", [(-1, 1), (1, -1), (1, MAX_COUNT + 1), (1, 1, MAX_COUNT + 1), (2**53 + 1, 1)])
def test_a_round_that_the_other_side_would_refuse_cannot_be_made(parts: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match="out of bounds"):
        RoundId(*parts)


def test_the_next_round_is_later_and_can_always_be_made() -> None:
    for last in (RoundId(1, 1), RoundId(1, 1, 5), RoundId(1, MAX_COUNT), RoundId(1, MAX_COUNT, MAX_COUNT)):
        assert last.next() > last


@given(st.text(max_size=2000), st.integers(0, 1500), st.booleans())
def test_cut_text_is_never_longer_than_its_limit(text: str, limit: int, keep_end: bool) -> None:
    assert len(cut(text, limit, keep_end=keep_end)) <= limit or len(text) <= limit
