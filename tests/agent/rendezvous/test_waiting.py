"""What an agent does while it waits for a round, as a table."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, Join, Refused, Restart, RoundId, Stop
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.rendezvous import waiting
from pytorchjob_agent.rendezvous.inbox import Inbox
from pytorchjob_agent.rendezvous.waiting import (
    Agree,
    Begin,
    Fenced,
    JoinAgain,
    KeepWaiting,
    Leaving,
    NotReached,
    Offer,
    Step,
    Stopped,
    WaitProgress,
    WaitSnapshot,
)

LAST, NEXT = RoundId(1, 1), RoundId(1, 2)
JOIN = Join(2000, LAST)
WAITING = WaitProgress(100.0, JOIN)
OFFERED = replace(WAITING, offered=True)
KNOWN = WaitSnapshot(102.0, Inbox(round=LAST), 0.0, round=LAST, has_store=True)
AWAY = replace(KNOWN, away=2.0, absent=True)
ASSIGNED = Assigned(NEXT, 0, 2, 0, 2, "10.0.0.1", 1, 1)
STOP = Stop(7, "RestartsUsedUp", "all are used up")


def with_inbox(known: WaitSnapshot, **changes: object) -> WaitSnapshot:
    """The same with other commands."""
    return replace(known, inbox=replace(known.inbox, **changes))  # type: ignore[arg-type]


CASES = [
    pytest.param(WAITING, KNOWN, KeepWaiting(), id="the coordinator waits for others"),
    pytest.param(WAITING, with_inbox(KNOWN, assigned=ASSIGNED), Begin(ASSIGNED), id="a round"),
    pytest.param(
        WAITING,
        with_inbox(KNOWN, assigned=ASSIGNED, restart=Restart(NEXT)),
        JoinAgain(JOIN, skip=True),
        id="a round that ended before it began",
    ),
    pytest.param(
        WAITING,
        with_inbox(KNOWN, restart=Restart(NEXT)),
        JoinAgain(Join(2000, NEXT)),
        id="a later round than ours is over",
    ),
    pytest.param(WAITING, AWAY, Offer(), id="no coordinator: the members may agree"),
    pytest.param(WAITING, with_inbox(AWAY, trains=NEXT), KeepWaiting(), id="a round has begun without this agent"),
    pytest.param(OFFERED, with_inbox(AWAY, trains=NEXT), JoinAgain(JOIN), id="and so it agrees no more"),
    pytest.param(WAITING, with_inbox(AWAY, trains=LAST), Offer(), id="it has trained in that round since"),
    pytest.param(WAITING, replace(AWAY, cut_off=True), KeepWaiting(), id="a group that was cut off may not agree"),
    pytest.param(OFFERED, replace(AWAY, cut_off=True), JoinAgain(JOIN), id="a group that was cut off agrees no more"),
    pytest.param(WAITING, replace(AWAY, absent=False), KeepWaiting(), id="a connection that stalls"),
    pytest.param(
        WAITING, replace(AWAY, has_store=False), KeepWaiting(), id="no coordinator and no store: nothing to agree on"
    ),
    pytest.param(
        WAITING, replace(AWAY, round=None, inbox=Inbox()), JoinAgain(Join(2000)), id="an agent without any round"
    ),
    pytest.param(
        replace(WAITING, join=Join(2000, NEXT)),
        with_inbox(AWAY, restart=Restart(NEXT)),
        KeepWaiting(),
        id="the others are in a later round: no agreement about the old one",
    ),
    pytest.param(OFFERED, AWAY, Agree(), id="offered: have all members offered?"),
    pytest.param(OFFERED, KNOWN, Agree(), id="the coordinator is back: the members may still agree"),
    pytest.param(OFFERED, replace(KNOWN, now=105.1), JoinAgain(JOIN), id="the coordinator is back for 5 s"),
    pytest.param(
        OFFERED,
        with_inbox(AWAY, restart=Restart(NEXT)),
        JoinAgain(Join(2000, NEXT)),
        id="offered, and the coordinator ended a later round",
    ),
    pytest.param(WAITING, with_inbox(KNOWN, stop=STOP, assigned=ASSIGNED), Stopped(STOP), id="a stop goes first"),
    pytest.param(
        WAITING, with_inbox(KNOWN, refused=Refused("taken", fenced=True)), Fenced("taken"), id="another agent is here"
    ),
    pytest.param(
        WAITING,
        replace(KNOWN, leaving=True),
        Leaving("the pod was asked to go while it waited for a round"),
        id="the pod has to go",
    ),
    pytest.param(
        replace(WAITING, since=-600.0),
        WaitSnapshot(102.0, Inbox(round=LAST, refused=Refused("who?", again=True)), 601.0, round=LAST),
        NotReached(ExitReason.AGENT_REFUSED, "no coordinator within 600 s: the coordinator refuses this agent: who?"),
        id="too late",
    ),
    pytest.param(
        replace(WAITING, since=-600.0),
        replace(KNOWN, away=601.0, has_store=False),
        NotReached(
            ExitReason.COORDINATOR_UNREACHABLE,
            "no coordinator within 600 s: the coordinator has not answered for 601 s"
            " (is the operator running, may this pod reach its Service?)",
        ),
        id="nobody has answered",
    ),
    pytest.param(WAITING, replace(KNOWN, away=601.0, has_store=False), KeepWaiting(), id="away long before the wait"),
    pytest.param(
        replace(WAITING, since=80.0),
        with_inbox(KNOWN, hold="waiting for pod-1"),
        KeepWaiting("waiting for pod-1"),
        id="the log names the reason after 15 s",
    ),
    pytest.param(
        replace(WAITING, since=80.0, reported=96.0),
        with_inbox(KNOWN, hold="waiting for pod-1"),
        KeepWaiting(),
        id="and not again for 15 s",
    ),
    # The moments at which the answer changes.
    pytest.param(OFFERED, replace(KNOWN, now=105.0), Agree(), id="the coordinator is back for just 5 s"),
    pytest.param(
        replace(WAITING, since=87.0),
        with_inbox(KNOWN, hold="waiting for pod-1"),
        KeepWaiting(),
        id="the log names no reason after just 15 s",
    ),
    pytest.param(
        replace(WAITING, since=-600.0),
        replace(KNOWN, away=600.0, has_store=False),
        KeepWaiting(
            "the coordinator has not answered for 600 s (is the operator running, may this pod reach its Service?)"
        ),
        id="away for just the timeout",
    ),
    pytest.param(
        replace(WAITING, since=-498.0),
        replace(KNOWN, away=601.0, has_store=False),
        KeepWaiting(
            "the coordinator has not answered for 601 s (is the operator running, may this pod reach its Service?)"
        ),
        id="waiting for just the timeout",
    ),
    pytest.param(
        replace(WAITING, since=80.0),
        replace(with_inbox(KNOWN, hold="waiting for pod-1"), away=0.6),
        KeepWaiting(
            "the coordinator has not answered for 1 s (is the operator running, may this pod reach its Service?)"
        ),
        id="a coordinator that is away is the reason, not its last words",
    ),
]


@pytest.mark.parametrize(("state", "known", "step"), CASES)
def test_the_next_step(state: WaitProgress, known: WaitSnapshot, step: Step) -> None:
    assert waiting.next_step(state, known) == step


def test_what_a_step_changes() -> None:
    again = Join(2000, NEXT)
    assert waiting.taken(OFFERED, JoinAgain(again), 105.0) == replace(WAITING, join=again)
    assert waiting.taken(WAITING, Offer(), 105.0) == OFFERED
    assert waiting.taken(WAITING, KeepWaiting("why"), 105.0).reported == 105.0
    assert waiting.taken(WAITING, KeepWaiting(), 105.0) is WAITING


@pytest.mark.parametrize(
    ("inbox", "expected"),
    [(Inbox(), False), (Inbox(assigned=ASSIGNED), True), (Inbox(stop=STOP), True), (Inbox(hold="x"), False)],
)
def test_what_ends_a_wait_at_once(inbox: Inbox, expected: bool) -> None:
    assert waiting.is_decided(inbox) is expected
