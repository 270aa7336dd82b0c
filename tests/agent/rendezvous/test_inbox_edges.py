"""Which commands end a round, and what remains of commands when a round begins or is dropped."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, HeartbeatReply, Hold, Restart, RoundId, Stop
from pytorchjob_agent.rendezvous import inbox as commands
from pytorchjob_agent.rendezvous.inbox import Inbox

OLD, NOW, NEXT = RoundId(1, 1), RoundId(1, 2), RoundId(1, 3)
HERE = Inbox(round=NOW)


def assigned(id_: RoundId) -> Assigned:
    return Assigned(id_, 0, 2, 0, 2, "10.0.0.1", 1, 0)


def test_a_heartbeat_reply_changes_nothing() -> None:
    assert commands.receive(HERE, HeartbeatReply()) is HERE


def test_an_assigned_round_ends_the_wait_for_it() -> None:
    assert commands.receive(commands.receive(HERE, Hold("waiting for pod-1")), assigned(NEXT)).hold == ""


def test_a_round_that_begins_is_not_waited_for() -> None:
    assert commands.begin(replace(HERE, hold="waiting for pod-1"), NEXT).hold == ""


@pytest.mark.parametrize(
    ("restart", "stands"),
    [
        pytest.param(NOW, False, id="of the round before: void"),
        pytest.param(NEXT, True, id="of the round that begins: it is over already"),
    ],
)
def test_a_restart_when_a_round_begins(restart: RoundId, stands: bool) -> None:
    inbox = commands.begin(replace(HERE, restart=Restart(restart)), NEXT)
    assert (inbox.restart is not None) is stands


def test_nothing_is_dropped_where_no_round_is_assigned() -> None:
    inbox = replace(HERE, restart=Restart(NOW), hold="waiting for pod-1")
    assert commands.skip(inbox) is inbox


@pytest.mark.parametrize(
    ("inbox", "concerns"),
    [
        pytest.param(HERE, False, id="it takes part in a later round"),
        pytest.param(Inbox(assigned=assigned(NOW)), False, id="a later round is about to begin"),
        pytest.param(Inbox(), True, id="it knows of no round"),
    ],
)
def test_a_restart_of_an_old_round(inbox: Inbox, concerns: bool) -> None:
    assert (commands.receive(inbox, Restart(OLD)).restart is not None) is concerns


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        pytest.param({}, False, id="no command"),
        pytest.param({"restart": Restart(OLD)}, False, id="an older round was ended"),
        pytest.param({"restart": Restart(NOW)}, True, id="it was ended"),
        pytest.param({"restart": Restart(NEXT)}, True, id="a later round was ended"),
        pytest.param({"assigned": assigned(NOW)}, False, id="it is the assigned round"),
        pytest.param({"assigned": assigned(NEXT)}, True, id="a later round is assigned"),
        pytest.param({"restart": Restart(NOW), "assigned": assigned(NOW)}, True, id="assigned, and ended"),
        pytest.param({"stop": Stop(1, "RestartsUsedUp", "all are used up")}, True, id="the job has ended"),
    ],
)
def test_whether_a_round_that_has_begun_is_over(changes: dict[str, object], over: bool) -> None:
    assert commands.superseded(replace(HERE, **changes), NOW) is over  # type: ignore[arg-type]
