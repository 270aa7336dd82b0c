"""The machine: which transitions are legal, what must hold after a decision, and its picture."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytorchjob_agent.contract.messages import Assigned, RoundId
from pytorchjob_agent.contract.reasons import EndReason
from pytorchjob_operator.coordinator_report import PhaseName
from pytorchjob_operator.rounds import diagram
from pytorchjob_operator.rounds.invariants import find_violations
from pytorchjob_operator.rounds.phases import (
    LEGAL,
    Ended,
    IllegalTransitionError,
    Phase,
    Rendezvous,
    Running,
    Stalled,
    Trigger,
    Waiting,
    check_transition,
    name_of,
)
from pytorchjob_operator.rounds.state import Decision, JobState, Send
from pytorchjob_operator.rounds.values import End, Member, Policy, Round

ROUND = Round(RoundId(3, 7), (0, 1), 0.0, world_size=2)
END = End(EndReason.BUDGET, "used up", 1, 0.0)
PHASES: dict[PhaseName, Phase] = {
    PhaseName.WAITING: Waiting(),
    PhaseName.RENDEZVOUS: Rendezvous(0.0, "x", ROUND),
    PhaseName.RUNNING: Running(ROUND),
    PhaseName.STALLED: Stalled(0.0, "x", ROUND),
    PhaseName.ENDED: Ended(END, ROUND),
}
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize("source", PhaseName)
@pytest.mark.parametrize("target", PhaseName)
def test_a_transition_is_legal_if_the_table_has_it(source: PhaseName, trigger: Trigger, target: PhaseName) -> None:
    if LEGAL.get((source, trigger)) is target:
        check_transition(PHASES[source], trigger, PHASES[target])
    else:
        with pytest.raises(IllegalTransitionError):
            check_transition(PHASES[source], trigger, PHASES[target])


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        pytest.param(
            Trigger.MEMBER_JOINED,
            "Waiting -> Ended by MEMBER_JOINED: expected Rendezvous",
            id="a transition to another phase",
        ),
        pytest.param(
            Trigger.SUCCEEDED,
            "Waiting -> Ended by SUCCEEDED: the table has no such transition",
            id="a trigger that the phase does not have",
        ),
    ],
)
def test_an_illegal_transition_is_reported_with_what_the_table_has(trigger: Trigger, message: str) -> None:
    with pytest.raises(IllegalTransitionError) as raised:
        check_transition(Waiting(), trigger, PHASES[PhaseName.ENDED])
    assert str(raised.value) == message


def test_every_phase_has_a_name_and_an_end_is_final() -> None:
    assert [name_of(phase) for phase in PHASES.values()] == list(PhaseName)
    assert not any(source is PhaseName.ENDED for source, _ in LEGAL)
    assert {trigger for _, trigger in LEGAL} == set(Trigger)


def state(phase: Phase, **more: object) -> JobState:
    return replace(JobState(Policy(2, 2), 3), phase=phase, **more)  # type: ignore[arg-type]


def member(index: int, connection: int | None = None, port: int | None = None) -> Member:
    return Member(index, f"pod-{index}", "", "", connection, "10.0.0.1", 1, 0.0, port=port)


def assigned(rank: int, connection: int, **changes: object) -> Send:
    given = Assigned(RoundId(3, 8), rank, 2, rank, 2, "10.0.0.1", 1, 0)
    return Send(connection, replace(given, **changes))  # type: ignore[arg-type]


NEXT = replace(ROUND, id=RoundId(3, 8))
STARTS = state(Running(NEXT))


@pytest.mark.parametrize(
    ("before", "after", "commands", "words"),
    [
        pytest.param(state(Waiting()), state(Waiting()), (), "", id="nothing happened"),
        pytest.param(state(Waiting()), STARTS, (assigned(0, 1), assigned(1, 2)), "", id="a round starts"),
        pytest.param(state(Waiting(), restarts=2), state(Waiting()), (), "restarts went back from 2 to 0", id="budget"),
        pytest.param(state(Running(NEXT)), state(Running(ROUND)), (), "round 3.7 follows round 3.8", id="an old round"),
        pytest.param(state(Running(NEXT)), state(Waiting()), (), "round 3.8 is forgotten", id="a forgotten round"),
        pytest.param(state(Ended(END)), state(Running(ROUND)), (), "that had ended goes on", id="after the end"),
        pytest.param(
            state(Waiting()), state(Waiting()), (assigned(0, 1),), "a round that does not run", id="a world of nothing"
        ),
        pytest.param(
            state(Waiting()),
            STARTS,
            (assigned(0, 1), assigned(1, 2, master_port=2)),
            "2 different worlds",
            id="two masters",
        ),
        pytest.param(
            state(Waiting()), STARTS, (assigned(0, 1), assigned(0, 2)), "ranks are not 0 to 1", id="a rank twice"
        ),
        pytest.param(state(Waiting()), STARTS, (assigned(0, 1), assigned(1, 1)), "on one connection", id="one for two"),
        pytest.param(
            state(Waiting()), STARTS, (assigned(0, 1, size=1),), "round 3.8 of 1, but round 3.8 runs", id="a size"
        ),
        pytest.param(
            state(Waiting()),
            STARTS,
            tuple(assigned(rank, rank, round=RoundId(3, 9)) for rank in (0, 1)),
            "round 3.9 of 2, but round 3.8 runs",
            id="a round that does not run",
        ),
        pytest.param(
            state(Waiting()),
            state(Rendezvous(0.0, "x", replace(ROUND, ranks=(0, 0)))),
            (),
            "a member has two ranks",
            id="two ranks in the last round",
        ),
        pytest.param(
            state(Waiting()), state(Running(replace(ROUND, ranks=(0, 0)))), (), "a member has two ranks", id="two ranks"
        ),
        pytest.param(
            state(Waiting()),
            state(Running(replace(ROUND, ranks=(0, None)))),
            (),
            "a rank without a member",
            id="a hole",
        ),
        pytest.param(
            state(Waiting()),
            state(Running(ROUND), members={0: member(0, 1, port=5)}),
            (),
            "pod-0 wait for a round although round 3.7 runs with them",
            id="a member of a running round waits",
        ),
        pytest.param(
            state(Waiting()),
            state(Rendezvous(0.0, "x"), members={0: member(0, 1), 1: member(1, 1)}),
            (),
            "share a connection",
            id="two members on one connection",
        ),
        pytest.param(
            state(Waiting()),
            state(Rendezvous(0.0, "x"), members={0: member(0, None, port=5)}),
            (),
            "without a connection",
            id="a port without a connection",
        ),
    ],
)
def test_invariants(before: JobState, after: JobState, commands: tuple[Send, ...], words: str) -> None:
    found = find_violations(before, Decision(after, commands, (), ""))
    assert found == [] if not words else words in "; ".join(found)


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        diagram.insert("text")
