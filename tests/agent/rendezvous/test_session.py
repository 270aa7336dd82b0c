"""What an agent sends on its connections, and when: bytes in, bytes out, without a socket or a clock."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import (
    LEASE_SECONDS,
    LINE_LIMIT,
    Assigned,
    Done,
    Failed,
    FromAgent,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Join,
    ProtocolError,
    Refused,
    Resumed,
    RoundId,
    Welcome,
    read_from_agent,
)
from pytorchjob_agent.rendezvous.session import GREETING_SECONDS, Session

ROUND = RoundId(1, 1)
ASSIGNED = Assigned(ROUND, 1, 2, 1, 2, "10.0.0.1", 2000, 3)


def session() -> Session:
    """An agent that has not connected yet."""
    return Session(Hello("job", "pod-0", "token", 0, "127.0.0.1", 1, "first"), 100.0)


def read(data: bytes) -> list[FromAgent]:
    """The messages in these bytes."""
    return [read_from_agent(line + b"\n") for line in data.splitlines()]


def receive(session: Session, *messages: Welcome | Refused | HeartbeatReply, now: float = 100.0) -> None:
    """Deliver messages of the coordinator."""
    for line in session.lines(b"".join(message.to_line() for message in messages), now):
        session.receive(line)


def connected() -> Session:
    """An agent whose hello was accepted at 100."""
    made = session()
    made.connect(100.0, 5.0)
    receive(made, Welcome(1))
    made.flush(100.0)
    return made


def test_nothing_follows_the_hello_before_it_is_accepted() -> None:
    made = session()
    made.join((), Join(2000), now=100.0)
    assert [message.kind for message in read(made.connect(100.0, 5.0))] == ["hello"]
    made.send(Heartbeat())
    assert made.flush(100.2) == b""
    assert made.away(100.2) == pytest.approx(0.2)
    receive(made, Welcome(1), now=100.3)
    assert read(made.flush(100.3)) == [Join(2000), Heartbeat()]
    assert made.away(100.3) == 0.0


def test_the_standing_is_sent_again_on_the_next_connection_and_only_once_on_each() -> None:
    made = connected()
    made.finish(ROUND, now=100.0)
    assert read(made.flush(100.25)) == [Done(ROUND, 0.25)]
    assert made.flush(100.2) == b""
    assert made.disconnect(101.0)
    hello = read(made.connect(102.0, 7.0))[0]
    assert isinstance(hello, Hello)
    assert hello.done
    receive(made, Welcome(2), now=102.0)
    assert read(made.flush(102.0)) == [Done(ROUND, 2.0)]


def test_the_age_of_an_end_counts_until_it_is_sent_and_sent_again() -> None:
    """The ledger books the end of the workers by it. The next coordinator may hear of it much later."""
    made = connected()
    made.finish(ROUND, 0.5, now=101.0)
    assert read(made.flush(101.25)) == [Done(ROUND, 0.75)]
    made.disconnect(102.0)
    made.connect(108.0, 5.0)
    receive(made, Welcome(2), now=109.0)
    assert read(made.flush(109.0)) == [Done(ROUND, 8.5)]


def test_the_age_of_a_failure_counts_until_it_is_sent() -> None:
    made, join = session(), Join(2000)
    made.join((Failed(ROUND, 0, 0, 1, "boom", age=0.5),), join, now=101.0)
    made.connect(105.0, 5.0)
    receive(made, Welcome(1), now=105.0)
    assert read(made.flush(106.0)) == [Failed(ROUND, 0, 0, 1, "boom", age=5.5), join]


def test_what_happens_between_hello_and_welcome_is_reported_in_its_order() -> None:
    """Otherwise a coordinator reads that a member waits, and then that it has workers: it waits for it for ever."""
    made = session()
    made.connect(100.0, 5.0)
    made.begin(ASSIGNED, agreed=True)
    made.join((), Join(2000, ROUND), now=100.0)
    receive(made, Welcome(1))
    assert [message.kind for message in read(made.flush(100.0))] == ["resumed", "join"]


def test_what_stood_before_the_hello_comes_before_what_is_newer() -> None:
    made = session()
    made.join((), Join(2000), now=100.0)
    made.connect(100.0, 5.0)
    made.send(Heartbeat(step=1))
    receive(made, Welcome(1))
    assert [message.kind for message in read(made.flush(100.0))] == ["join", "heartbeat"]


def test_a_message_that_was_sent_without_a_connection_is_lost() -> None:
    made = session()
    made.send(Heartbeat())
    made.connect(100.0, 5.0)
    receive(made, Welcome(1))
    assert made.flush(100.0) == b""


def test_a_hello_has_the_round_in_which_workers_run_until_the_agent_joins_again() -> None:
    made = session()
    made.begin(ASSIGNED, agreed=True)
    assert made.standing.then == (Resumed(ROUND, 3, age=0.0),)
    hello = read(made.connect(100.0, 5.0))[0]
    assert isinstance(hello, Hello)
    assert (hello.round, hello.rank, hello.size, hello.restarts) == (ROUND, 1, 2, 3)
    made.join((), Join(2000), now=100.0)
    waiting = made.standing.hello
    assert (waiting.round, waiting.last_round, waiting.rank, waiting.size, waiting.restarts) == (None, ROUND, 1, 2, 3)
    made.join((), Join(2001), now=100.0)
    assert made.standing.hello.last_round == ROUND
    made.begin(ASSIGNED, agreed=False)
    assert made.standing.hello.last_round is None


def test_an_agent_keeps_the_jobs_failures_for_the_next_coordinator() -> None:
    made = connected()
    made.lines(b"", 103.0)
    made.begin(replace(ASSIGNED, past_failures=(9, 1, 77)), agreed=False)
    made.begin(replace(ASSIGNED, round=RoundId(9, 9)), agreed=True)
    made.join((), Join(2000), now=100.0)
    hello = read(made.connect(120.5, 5.0))[0]
    assert isinstance(hello, Hello)
    assert (hello.past_failures, hello.past_age) == ((9, 1, 77), 17)


def test_a_heartbeat_is_due_once_a_second() -> None:
    made = connected()
    assert (made.heartbeat_due(100.9), made.heartbeat_due(101.0)) == (False, True)
    assert made.wait_seconds(100.4) == pytest.approx(0.6)
    assert read(made.flush(101.0, Heartbeat(step=4))) == [Heartbeat(step=4)]
    assert made.wait_seconds(101.0) == pytest.approx(1.0)
    assert session().wait_seconds(100.0) == GREETING_SECONDS


def test_a_silence_as_long_as_the_lease_ends_the_connection() -> None:
    made = connected()
    made.flush(100.0 + LEASE_SECONDS)
    receive(made, HeartbeatReply(), now=103.0)
    made.flush(103.0 + LEASE_SECONDS)
    with pytest.raises(ConnectionError, match="sent nothing for 5 s"):
        made.flush(103.1 + LEASE_SECONDS)


def test_after_a_silence_the_coordinator_is_away_since_it_was_last_heard() -> None:
    made = connected()
    for second in range(6):
        made.flush(100.0 + second)
    with pytest.raises(ConnectionError):
        made.flush(105.5)
    made.disconnect(105.5)
    assert made.away(105.5) == pytest.approx(5.5)


def test_an_agent_that_was_frozen_does_not_take_that_time_for_a_silence_of_the_coordinator() -> None:
    made = connected()
    made.flush(101.0)
    with pytest.raises(ConnectionError):
        made.flush(3701.0)
    made.disconnect(3701.1)
    assert made.away(3701.1) == pytest.approx(0.1)


def test_members_do_without_a_coordinator_that_a_new_connection_does_not_reach() -> None:
    """A connection that stalls is no sign of it: the coordinator may have begun a round with others meanwhile."""
    made = connected()
    made.disconnect(103.0)
    assert not made.absent(110.0), "no connection has been tried"
    made.disconnect(103.5)
    assert [made.absent(at) for at in (104.5, 104.6)] == [False, True]
    made.connect(105.0, 0.0)
    receive(made, Welcome(2), now=105.0)
    made.flush(105.0)
    assert not made.absent(110.0)


def test_a_connection_that_is_closed_is_lost_at_that_time() -> None:
    made = connected()
    made.disconnect(103.0)
    assert made.away(103.5) == pytest.approx(0.5)


def test_pauses_between_attempts_grow_and_start_again_after_a_connection() -> None:
    made = session()
    assert [made.pause() for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert not made.disconnect(101.0), "no coordinator was connected"
    receive(made, Refused("no"))
    assert [made.pause() for _ in range(3)] == [1.0, 2.0, 2.0]
    made.connect(102.0, 5.0)
    receive(made, Welcome(1), now=102.0)
    made.flush(102.0)
    assert made.disconnect(103.0)
    assert made.pause() == 0.05


def test_an_agent_that_was_frozen_does_not_obey_what_was_sent_before_it_woke() -> None:
    made = connected()
    with pytest.raises(ConnectionError, match="sent nothing for 5 s"):
        receive(made, Welcome(2), now=105.1)
    assert made.inbox.welcomes == 1


def test_a_line_comes_in_any_pieces() -> None:
    made, line = session(), Welcome(1).to_line()
    assert made.lines(line[:5], 100.0) == []
    assert made.lines(line[5:] + b"{", 100.0) == [line[:-1]]
    with pytest.raises(ProtocolError, match="more than"):
        made.lines(b"x" * LINE_LIMIT, 100.0)


@pytest.mark.parametrize(
    ("renewed", "sent"),
    [
        pytest.param({}, "token", id="the first one"),
        pytest.param({"token": "renewed"}, "renewed", id="the pod's credential at this time"),
        pytest.param({"token": ""}, "token", id="none can be read: the first one"),
    ],
)
def test_which_credential_a_hello_has(renewed: dict[str, str], sent: str) -> None:
    (hello,) = read(session().connect(100.0, 5.0, **renewed))
    assert isinstance(hello, Hello)
    assert hello.token == sent
