"""What is said on the wire: each message comes back as it was, and nothing else comes through."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytorchjob_agent.contract.messages import (
    LINE_LIMIT,
    Assigned,
    Checkpoint,
    Done,
    Draining,
    Failed,
    Finished,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Hold,
    Join,
    Message,
    ProtocolError,
    Refused,
    Restart,
    Resumed,
    RoundId,
    Save,
    Shrink,
    Stop,
    Terminating,
    ToAgent,
    Unreachable,
    Welcome,
    read_from_agent,
    read_to_agent,
)

ROUND = RoundId(3, 7, 1)
HELLO = Hello("job", "pod", "token", 0, "10.0.0.1", 8, "first", round=ROUND, rank=1, size=2, versions={"cuda": None})
FROM_AGENT: list[Message] = [
    HELLO,
    Join(4321),
    Heartbeat(step=5, total=10, metrics={"loss": 0.5}, heard=(0, 2), heard_ages=(3, 12), cooperative=True, answered=3),
    Heartbeat(heard=(1,), heard_ages=(3,), heard_in=ROUND, saves_on_request=True),
    Heartbeat(),
    Heartbeat(
        step=5,
        first_step=1,
        first_age=2.5,
        step_age=0.5,
        workers_age=9.5,
        saves=2,
        save_seconds=1.5,
        saved_step=4,
        load_seconds=0.5,
    ),
    Heartbeat(shown_step=5, shown_total=10, percent=50, remaining=7, rate=0.7, metrics={"loss": 0.5}),
    Failed(
        ROUND,
        3,
        1,
        137,
        "killed",
        "Traceback ...",
        (4, 5),
        hang=True,
        waits=True,
        age=0.5,
        errors=("ValueError", "KeyError"),
        raised_in="train",
    ),
    Done(ROUND),
    Resumed(ROUND, 2, "boom"),
    Draining(20.0, "SIGTERM"),
    Unreachable(ROUND, "10.0.0.2:1", "refused"),
]
TO_AGENT: list[Message] = [
    Welcome(3),
    Refused("no", again=True, fenced=True),
    Assigned(ROUND, 0, 2, 0, 4, "10.0.0.1", 1, 5, "10.0.0.2:1", "rank 1 failed", "5ec2e7", zone="eu-1a"),
    Restart(ROUND, "rank 1 failed", dump=True),
    Shrink(ROUND, 2, (1, 3), (2, 3, 6, 7), 4, (1, 2, 3), True, (2, 3), "rank 2 on pod-1 failed"),
    Checkpoint(ROUND, 2, 30.0, "pod-1 joined"),
    Save(ROUND, 3, 300.0, "pod-1: its node n1 is cordoned"),
    Hold("a spare waits"),
    Stop(7, "RestartsUsedUp", "all are used up"),
    Terminating(),
    Finished(ROUND),
    HeartbeatReply(),
]


@pytest.mark.parametrize("message", [pytest.param(one, id=f"{one.kind}-{at}") for at, one in enumerate(FROM_AGENT)])
def test_what_an_agent_says_comes_back_as_it_was(message: Message) -> None:
    assert read_from_agent(message.to_line()) == message
    assert message.to_line().count(b"\n") == 1


@pytest.mark.parametrize("message", [pytest.param(message, id=message.kind) for message in TO_AGENT])
def test_what_the_coordinator_says_comes_back_as_it_was(message: Message) -> None:
    assert read_to_agent(message.to_line()) == message


def changed(message: Message, **changes: Any) -> bytes:
    """A message with other fields; None leaves one out."""
    said = json.loads(message.to_line()) | changes
    return json.dumps({name: value for name, value in said.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param(b"hello\n", "is not JSON", id="no JSON"),
        pytest.param(b"[1, 2]\n", "kind: 'None'", id="no object"),
        pytest.param(b'{"kind": "shout"}\n', "is not one of done, draining", id="an unknown kind"),
        pytest.param(b'{"kind": ["join"]}\n', "kind:", id="a kind that is no text"),
        pytest.param(Welcome(1).to_line(), "kind: 'welcome'", id="what only the coordinator says"),
        pytest.param(b"[" * 60_000, "is not JSON", id="too deep"),
        pytest.param(b" " * (LINE_LIMIT + 1), f"expected at most {LINE_LIMIT}", id="too long"),
        pytest.param(changed(Join(1), port=...), "port", id="a field is missing"),
        pytest.param(changed(Join(1), port=0), "a whole number 1..65535", id="a port of 0"),
        pytest.param(changed(Join(1), port=True), "port", id="true for a number"),
        pytest.param(changed(Join(1), port="1"), "port", id="text for a number"),
        pytest.param(changed(HELLO, pod=5), "pod: '5' is not text of at most 253", id="a number for a text"),
        pytest.param(changed(HELLO, pod="x" * 254), "pod", id="a text that is too long"),
        pytest.param(changed(HELLO, index=-1), "index", id="a negative index"),
        pytest.param(changed(HELLO, round=[1, 2]), "[term, number, attempt]", id="half a round"),
        pytest.param(changed(HELLO, versions={"torch": 2}), "versions", id="a version that is a number"),
        pytest.param(changed(Done(ROUND), round=None), "round", id="no round where one has to be"),
        pytest.param(changed(Heartbeat(), heard=list(range(10_001))), "heard", id="more ranks than there may be"),
        pytest.param(changed(Heartbeat(), heard_in=[1, 2]), "heard_in", id="half a round of what was heard"),
        pytest.param(changed(Heartbeat(), metrics={str(n): 1 for n in range(17)}), "metrics", id="too many metrics"),
        pytest.param(changed(Heartbeat(), percent=101), "a whole number 0..100 or null", id="more than all"),
        pytest.param(b'{"kind": "heartbeat", "metrics": {"loss": NaN}}', "metrics", id="a metric that is no number"),
        pytest.param(b'{"kind": "heartbeat", "metrics": {"loss": 1e999}}', "metrics", id="an infinite metric"),
    ],
)
def test_what_nobody_would_say_is_refused_by_name(line: bytes, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        read_from_agent(line)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


LONG = "\u4e16" * 30_000


@pytest.mark.parametrize(
    ("message", "field"),
    [
        pytest.param(Failed(ROUND, 0, 0, 1, LONG, LONG), "message", id="a message and a traceback in Chinese"),
        pytest.param(Heartbeat(heard=(10**15,) * 20_000), "heard", id="a rank for each of too many members"),
        pytest.param(Heartbeat(metrics={f"{n}": float("nan") if n else 1.0 for n in range(99)}), "metrics", id="NaN"),
        pytest.param(Unreachable(ROUND, LONG, LONG), "error", id="an error of 30,000 characters"),
        pytest.param(replace(HELLO, versions={"a": LONG}), "versions", id="a version"),
    ],
)
def test_whatever_an_agent_sends_can_be_read(message: Message, field: str) -> None:
    assert getattr(read_from_agent(message.to_line()), field)


@pytest.mark.parametrize("message", [Restart(ROUND, LONG), Hold(LONG), Stop(1, LONG, LONG), Refused(LONG)])
def test_whatever_the_coordinator_sends_can_be_read(message: Message) -> None:
    assert read_to_agent(message.to_line()).kind == message.kind


def test_every_message_has_an_example() -> None:
    assert {type(message) for message in FROM_AGENT} == set(get_args(FromAgent))
    assert {type(message) for message in TO_AGENT} == set(get_args(ToAgent))


def test_a_newer_peer_may_say_more() -> None:
    assert read_from_agent(changed(Join(1), colour="blue")) == Join(1)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(repr))
def test_no_line_breaks_the_reader(line: bytes | str) -> None:
    data = line if isinstance(line, bytes) else line.encode(errors="replace")
    assume(data.strip() != HeartbeatReply().to_line().strip())  # a message, which Hypothesis finds in the source
    for read in (read_from_agent, read_to_agent):
        with pytest.raises(ProtocolError):
            read(data)


def test_rounds_are_in_the_order_in_which_they_came() -> None:
    order = [RoundId(1, 1), RoundId(1, 1, 1), RoundId(1, 2), RoundId(2, 1)]
    assert sorted([order[2], order[0], order[3], order[1]]) == order
    assert [str(id_) for id_ in order] == ["1.1", "1.1.1", "1.2", "2.1"]
