"""Which orders stand: the newest of each kind, and none of a round that is over."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import (
    Assigned,
    Checkpoint,
    Finished,
    Hold,
    Refused,
    Restart,
    RoundId,
    Save,
    Stop,
    Terminating,
    Welcome,
)
from pytorchjob_agent.rendezvous.inbox import Inbox, begin, ended, over, receive, skip

OLD, NOW, NEXT, LATER = RoundId(1, 1), RoundId(1, 2), RoundId(1, 2, 1), RoundId(2, 1)


def assigned(id_: RoundId) -> Assigned:
    """A place in a round."""
    return Assigned(id_, 0, 2, 0, 2, "10.0.0.1", 1, 0)


HERE = Inbox(round=NOW)


@pytest.mark.parametrize(
    ("message", "field", "stands"),
    [
        pytest.param(assigned(OLD), "assigned", False, id="an old round"),
        pytest.param(assigned(NOW), "assigned", False, id="the round that runs"),
        pytest.param(assigned(NEXT), "assigned", True, id="a round that the members agreed on"),
        pytest.param(assigned(LATER), "assigned", True, id="another leader's round"),
        pytest.param(Restart(OLD), "restart", False, id="an old round's restart"),
        pytest.param(Restart(NOW), "restart", True, id="a restart"),
        pytest.param(Restart(LATER), "restart", True, id="a restart of a round that we have missed"),
        pytest.param(Checkpoint(OLD, 1, 1.0), "checkpoint", False, id="an old round's request"),
        pytest.param(Checkpoint(NOW, 1, 1.0), "checkpoint", True, id="a request"),
        pytest.param(Save(OLD, 1, 1.0), "save", False, id="an old round's request to save and continue"),
        pytest.param(Save(NOW, 1, 1.0), "save", True, id="a request to save and continue"),
        pytest.param(Finished(OLD), "finished", False, id="an old round's end"),
        pytest.param(Finished(NOW), "finished", True, id="the end"),
        pytest.param(Terminating(), "terminating", True, id="the pod is being deleted"),
        pytest.param(Stop(1, "x", "y"), "stop", True, id="an order to end"),
        pytest.param(Hold("wait"), "hold", True, id="what is waited for"),
        pytest.param(Hold("wait", NEXT), "trains", True, id="a round without this agent"),
        pytest.param(Refused("no"), "refused", True, id="a refusal"),
    ],
)
def test_what_is_heard(message: object, field: str, stands: bool) -> None:
    assert bool(getattr(receive(HERE, message), field)) is stands  # type: ignore[arg-type]


def test_it_comes_back_into_its_round_once_by_each_change() -> None:
    again = replace(assigned(NOW), enters=2)
    assert receive(HERE, again).assigned == again
    back = begin(receive(HERE, again), NOW, 2)
    assert receive(back, again).assigned is None, "the same word, once more"
    later = receive(back, replace(again, enters=4))
    assert later.assigned is not None
    assert begin(later, NOW, 2).assigned is not None, "it came while the workers of the one before began"


def test_of_two_rounds_the_later_one_stands() -> None:
    for first, second in ((NEXT, LATER), (LATER, NEXT)):
        inbox = receive(receive(HERE, assigned(first)), assigned(second))
        assert inbox.assigned is not None
        assert inbox.assigned.round == LATER


def test_a_round_that_begins_voids_what_was_said_of_older_ones() -> None:
    inbox = HERE
    requests = Checkpoint(NOW, 1, 1.0), Save(NOW, 2, 1.0)
    for message in (Restart(NOW), *requests, Finished(NOW), Hold("wait"), assigned(NEXT)):
        inbox = receive(inbox, message)
    assert begin(inbox, NEXT) == Inbox(round=NEXT)


def test_a_request_to_save_that_comes_right_behind_the_round_stands_once_the_round_has_begun() -> None:
    inbox = receive(receive(HERE, assigned(NEXT)), Checkpoint(NEXT, 1, 1.0))
    assert inbox.save_request is None
    assert begin(inbox, NEXT).save_request == Checkpoint(NEXT, 1, 1.0)


def test_a_request_to_save_and_continue_stands_once_its_round_has_begun() -> None:
    inbox = receive(receive(HERE, assigned(NEXT)), Save(NEXT, 1, 1.0))
    assert inbox.save_and_continue is None
    assert begin(inbox, NEXT).save_and_continue == Save(NEXT, 1, 1.0)


def test_a_later_order_outlives_the_begin_of_a_round() -> None:
    inbox = begin(receive(receive(HERE, Restart(LATER)), assigned(LATER)), NEXT)
    assert inbox.restart == Restart(LATER)
    assert inbox.assigned == assigned(LATER)


def test_a_welcome_ends_a_refusal() -> None:
    inbox = receive(receive(HERE, Refused("no")), Welcome(1))
    assert (inbox.refused, inbox.welcomes) == (None, 1)


def test_a_round_may_end_before_it_begins() -> None:
    inbox = receive(receive(Inbox(), assigned(NOW)), Restart(NOW))
    assert over(inbox)
    assert skip(inbox) == Inbox(round=NOW)
    assert not over(receive(receive(HERE, Restart(NOW)), assigned(NEXT)))


@pytest.mark.parametrize(
    ("inbox", "expected"),
    [
        pytest.param(Inbox(), None, id="nothing has begun"),
        pytest.param(HERE, NOW, id="our last round"),
        pytest.param(receive(HERE, Restart(NEXT)), NEXT, id="one that the members may still agree on"),
        pytest.param(receive(Inbox(), Restart(NOW)), NOW, id="one that a lost agent of this pod was in"),
    ],
)
def test_a_round_that_is_over_for_whoever_waits(inbox: Inbox, expected: RoundId | None) -> None:
    assert ended(inbox) == expected
