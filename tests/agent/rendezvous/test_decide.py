"""What an agent does next, as a table."""

from dataclasses import replace

import pytest

from pytorchjob_agent.contract.messages import Assigned, Restart, RoundId, Stop
from pytorchjob_agent.rendezvous.decide import Snapshot, StepKind, Workers, decide
from pytorchjob_agent.rendezvous.inbox import Inbox

ROUND, NEXT = RoundId(1, 1), RoundId(1, 2)
QUIET = Snapshot(now=100.0, workers=Workers.RUN, inbox=Inbox(round=ROUND))
STOP = Stop(7, "RestartsUsedUp", "all are used up")


def with_inbox(snapshot: Snapshot, **changes: object) -> Snapshot:
    """The same with other orders."""
    return replace(snapshot, inbox=replace(snapshot.inbox, **changes))  # type: ignore[arg-type]


RESTART = with_inbox(QUIET, restart=Restart(ROUND, "rank 1 failed"))
NEW_ROUND = with_inbox(QUIET, assigned=Assigned(NEXT, 0, 2, 0, 2, "10.0.0.1", 1, 1))
CASES = [
    pytest.param(QUIET, StepKind.WAIT, False, id="workers that run are left alone"),
    pytest.param(
        replace(QUIET, away=3600.0), StepKind.WAIT, False, id="an operator that is away for an hour changes nothing"
    ),
    pytest.param(replace(QUIET, silence=60.0), StepKind.WAIT, False, id="silent peers alone change nothing"),
    pytest.param(
        replace(QUIET, away=6.0, silence=6.0), StepKind.REGROUP, False, id="who hears nobody ends its workers"
    ),
    pytest.param(RESTART, StepKind.REGROUP, False, id="the coordinator's order to restart"),
    pytest.param(NEW_ROUND, StepKind.REGROUP, False, id="a round that began without our notice"),
    pytest.param(
        replace(QUIET, peers_restart="boom", away=2.0, absent=True),
        StepKind.REGROUP,
        True,
        id="a peer asks through the store and no coordinator answers",
    ),
    pytest.param(
        replace(QUIET, peers_restart="boom"), StepKind.WAIT, False, id="a peer asks although the coordinator answers"
    ),
    pytest.param(
        replace(RESTART, peers_restart="boom"),
        StepKind.REGROUP,
        False,
        id="the coordinator's word goes before the peers'",
    ),
    pytest.param(replace(QUIET, away=240.0, cut_off=True), StepKind.REGROUP, False, id="a group that is cut off"),
    pytest.param(replace(QUIET, workers=Workers.FAILED), StepKind.REPORT_FAILURE, False, id="workers failed"),
    pytest.param(replace(QUIET, workers=Workers.HANG), StepKind.REPORT_FAILURE, False, id="workers hang"),
    pytest.param(
        replace(QUIET, workers=Workers.FAILED, away=2.0, absent=True),
        StepKind.REPORT_FAILURE,
        True,
        id="workers failed, nobody to tell",
    ),
    pytest.param(
        replace(RESTART, workers=Workers.FAILED),
        StepKind.REPORT_FAILURE,
        False,
        id="a failure is told before a restart",
    ),
    pytest.param(replace(QUIET, workers=Workers.DONE), StepKind.REPORT_DONE, False, id="workers are done"),
    pytest.param(
        replace(QUIET, workers=Workers.DONE, all_done=True),
        StepKind.REPORT_DONE,
        False,
        id="all are done: by the coordinator",
    ),
    pytest.param(
        replace(QUIET, workers=Workers.DONE, all_done=True, away=9.0, absent=True),
        StepKind.FINISH,
        False,
        id="all are done: by the store",
    ),
    pytest.param(
        with_inbox(replace(QUIET, workers=Workers.DONE), finished=True), StepKind.FINISH, False, id="everybody is done"
    ),
    pytest.param(
        with_inbox(replace(QUIET, workers=Workers.DONE), restart=Restart(ROUND)),
        StepKind.REGROUP,
        False,
        id="done, but another one failed: once more",
    ),
    pytest.param(with_inbox(RESTART, stop=STOP), StepKind.STOP, False, id="an order to end goes before all others"),
    pytest.param(replace(QUIET, fenced=True), StepKind.STOP, False, id="another agent has our place"),
    pytest.param(
        replace(QUIET, leave_by=120.0), StepKind.REPORT_LEAVING, False, id="asked to go: the others are told first"
    ),
    pytest.param(
        replace(QUIET, leave_by=120.0, reported_leaving=True), StepKind.WAIT, False, id="asked to go: the others save"
    ),
    pytest.param(
        replace(QUIET, leave_by=99.0, reported_leaving=True), StepKind.LEAVE, False, id="asked to go: the time is over"
    ),
    pytest.param(
        replace(QUIET, leave_by=120.0, away=2.0, absent=True), StepKind.LEAVE, False, id="asked to go: nobody to tell"
    ),
    pytest.param(
        replace(QUIET, workers=Workers.DONE, leave_by=120.0),
        StepKind.REPORT_DONE,
        False,
        id="asked to go when all is done here",
    ),
    pytest.param(
        replace(QUIET, workers=Workers.STOPPED), StepKind.WAIT, False, id="saved and stopped: the order comes soon"
    ),
    pytest.param(
        replace(QUIET, workers=Workers.STOPPED, away=2.0, absent=True),
        StepKind.REGROUP,
        True,
        id="saved and stopped: no order will come",
    ),
    # The moments at which the answer changes.
    pytest.param(
        replace(QUIET, peers_restart="boom", away=9.0), StepKind.WAIT, False, id="a peer asks, a connection stalls"
    ),
    pytest.param(replace(QUIET, away=5.0, silence=5.0), StepKind.REGROUP, False, id="no sign of life for just a lease"),
    pytest.param(
        replace(QUIET, away=4.9, silence=9.0), StepKind.WAIT, False, id="the coordinator answered within a lease"
    ),
    pytest.param(replace(QUIET, away=9.0, silence=4.9), StepKind.WAIT, False, id="a peer was heard within a lease"),
    pytest.param(
        replace(QUIET, workers=Workers.FAILED, away=9.0),
        StepKind.REPORT_FAILURE,
        False,
        id="failed, a connection stalls",
    ),
    pytest.param(
        replace(QUIET, workers=Workers.DONE, all_done=True, away=9.0),
        StepKind.REPORT_DONE,
        False,
        id="done, a connection stalls",
    ),
    pytest.param(
        replace(QUIET, workers=Workers.DONE, leave_by=100.0),
        StepKind.LEAVE,
        False,
        id="done here, and the time is over",
    ),
    pytest.param(
        replace(QUIET, workers=Workers.STOPPED, away=9.0),
        StepKind.WAIT,
        False,
        id="saved and stopped, a connection stalls",
    ),
    pytest.param(replace(QUIET, leave_by=100.0), StepKind.LEAVE, False, id="asked to go: the time is just over"),
    pytest.param(
        replace(QUIET, leave_by=120.0, away=9.0), StepKind.REPORT_LEAVING, False, id="asked to go, a connection stalls"
    ),
]


@pytest.mark.parametrize(("snapshot", "kind", "by_members"), CASES)
def test_the_next_step(snapshot: Snapshot, kind: StepKind, by_members: bool) -> None:
    step = decide(snapshot)
    assert (step.kind, step.by_members) == (kind, by_members)
    assert step.reason


def test_a_stop_comes_with_the_command_and_its_words() -> None:
    step = decide(with_inbox(QUIET, stop=STOP))
    assert (step.stop, step.reason) == (STOP, STOP.message)


@pytest.mark.parametrize(
    ("snapshot", "caused"),
    [
        pytest.param(replace(QUIET, away=6.0, silence=6.0), True, id="it heard nobody"),
        pytest.param(
            with_inbox(QUIET, restart=Restart(ROUND, "pod-1 was deleted", caused=True)),
            True,
            id="a loss ends the round",
        ),
        pytest.param(replace(QUIET, cut_off=True), True, id="its group is cut off"),
        pytest.param(
            replace(QUIET, workers=Workers.STOPPED, away=9.0, absent=True),
            True,
            id="it has saved and stopped on request",
        ),
        pytest.param(RESTART, False, id="a failure ends the round"),
        pytest.param(replace(QUIET, workers=Workers.FAILED), False, id="workers failed here"),
    ],
)
def test_a_member_knows_whether_its_round_ended_for_another_reason_than_a_failure(
    snapshot: Snapshot, caused: bool
) -> None:
    assert decide(snapshot).caused is caused
