"""What the coordinator receives of an agent's situation, and what an agent does with the edges of a connection."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import (
    LINE_LIMIT,
    Assigned,
    Draining,
    Failed,
    HeartbeatReply,
    Hello,
    Hold,
    Join,
    Message,
    ProtocolError,
    Restart,
    Resumed,
    RoundId,
    Welcome,
    read_from_agent,
)
from pytorchjob_agent.rendezvous.session import GREETING_SECONDS, Session

BEFORE, ROUND, NEXT = RoundId(1, 0), RoundId(1, 1), RoundId(1, 2)
ASSIGNED = Assigned(ROUND, 1, 2, 1, 2, "10.0.0.1", 2000, 3, reason="a worker failed")


def session() -> Session:
    return Session(Hello("job", "pod-0", "token", 0, "127.0.0.1", 1, "first"), 100.0)


def connected() -> Session:
    """An agent that the coordinator has accepted at 100, and has not heard since."""
    made = session()
    made.connect(100.0, 5.0)
    made.receive(Welcome(1).to_line())
    made.flush(100.0)
    return made


def hello(made: Session) -> Hello:
    """The hello of the next connection."""
    found = read_from_agent(made.connect(101.0, 7.5))
    assert isinstance(found, Hello)
    return found


def test_the_hello_has_the_time_of_the_connection() -> None:
    assert hello(session()).clock == 7.5


def test_a_member_that_waits_sends_its_reports_first_and_is_not_done() -> None:
    made, report = session(), Failed(ROUND, 0, 0, 1, "boom")
    made.finish(ROUND, now=100.0)
    made.join((report,), Join(2000), now=100.0)
    assert made.standing.then == (report, Join(2000))
    assert (hello(made).round, hello(made).done) == (None, False)


@pytest.mark.parametrize(
    ("agreed", "then"),
    [
        pytest.param(False, (), id="assigned by the coordinator: nothing to report"),
        pytest.param(
            True,
            (Resumed(ROUND, 3, "a worker failed", 0.0), Failed(BEFORE, 0, 0, 1, "boom", age=1.0)),
            id="agreed on by the members: reported, with why and how the workers failed before",
        ),
    ],
)
def test_a_round_that_begins(agreed: bool, then: tuple[Message, ...]) -> None:
    made = session()
    made.finish(ROUND, now=100.0)
    failed = Failed(BEFORE, 0, 0, 1, "boom", "Traceback ...", age=1.0)
    made.begin(ASSIGNED, agreed=agreed, reports=(failed,), ended_at=100.0)
    assert made.standing.then == then
    assert [made.standing.aged(message, 104.0) for message in then] == [replace(m, age=m.age + 4) for m in then]
    assert made.inbox.round == ROUND
    assert (hello(made).rank, hello(made).size, hello(made).done) == (1, 2, False)


def test_a_round_that_ended_before_it_began_is_dropped() -> None:
    made = session()
    for message in (replace(ASSIGNED, round=NEXT), Restart(NEXT)):
        made.receive(message.to_line())
    made.skip()
    assert (made.inbox.round, made.inbox.assigned) == (NEXT, None)


def test_a_pod_that_has_to_go_reports_its_time_and_why() -> None:
    made = session()
    made.leave(12.0, "SIGTERM")
    assert made.standing.then == (Draining(12.0, "SIGTERM"),)


def test_a_message_that_changes_a_command_is_known_from_one_that_does_not() -> None:
    made = session()
    assert made.receive(Hold("waiting for pod-1").to_line())
    assert not made.receive(HeartbeatReply().to_line())


def test_no_heartbeat_is_due_between_two_connections() -> None:
    made = session()
    made.connect(100.0, 5.0)
    made.receive(Welcome(1).to_line())
    made.flush(100.0)
    made.disconnect(101.0)
    assert not made.heartbeat_due(200.0)
    assert made.wait_seconds(200.0) == GREETING_SECONDS


def test_a_line_of_just_the_limit_is_not_too_long() -> None:
    made = session()
    assert made.lines(b"x" * LINE_LIMIT, 100.0) == []
    with pytest.raises(ProtocolError, match="more than"):
        made.lines(b"x", 100.0)


@pytest.mark.parametrize(
    ("silence", "away"),
    [
        pytest.param(5.0, 0.0, id="after just a lease: away from now"),
        pytest.param(5.1, 5.1, id="after more: away since the last message"),
    ],
)
def test_since_when_a_silent_coordinator_is_away(silence: float, away: float) -> None:
    made = connected()
    for second in range(1, 5):
        made.flush(100.0 + second)
    made.disconnect(100.0 + silence)
    assert made.away(100.0 + silence) == pytest.approx(away)


@pytest.mark.parametrize(
    ("pause", "away"),
    [
        pytest.param(2.0, 6.0, id="two seconds between its heartbeats: it was awake"),
        pytest.param(2.1, 1.9, id="more: it was frozen, and counts from when it woke"),
    ],
)
def test_an_agent_that_was_frozen_does_not_blame_the_coordinator(pause: float, away: float) -> None:
    made = connected()
    for now in (101.0, 102.0, 102.0 + pause, 105.0):
        made.flush(now)
    made.disconnect(106.0)
    assert made.away(106.0) == pytest.approx(away)
