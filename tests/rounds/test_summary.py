from dataclasses import replace
from typing import Any

import pytest

from pytorchjob_agent.contract.messages import LEASE_SECONDS, RoundId
from pytorchjob_agent.contract.reasons import EndReason, TrainingReason
from pytorchjob_operator.coordinator_report import LastRestart, PhaseName, Report, SilentPod, TrainingEnd
from pytorchjob_operator.rounds.decide import decide
from pytorchjob_operator.rounds.phases import Ended, Rendezvous, Running, Stalled, Waiting
from pytorchjob_operator.rounds.state import AuthenticationFailed, JobState, Tick
from pytorchjob_operator.rounds.summary import summarize
from pytorchjob_operator.rounds.values import (
    End,
    ExpectedPod,
    Member,
    PastRestart,
    Policy,
    Round,
    ShownProgress,
    SilentAgent,
)

NOW = 100.0
ROUND = Round(RoundId(3, 7), (0, 1), NOW, world_size=4)


def member(index: int, **changes: Any) -> Member:
    given = Member(index, f"pod-{index}", f"uid-{index}", "first", index, f"10.0.0.{index}", 2, NOW)
    return replace(given, **changes)


def state(*members: Member, **changes: Any) -> JobState:
    found = JobState(Policy(2, 2), 3, Running(ROUND), members={member.index: member for member in members})
    return replace(found, **changes)


PODS = {index: ExpectedPod(f"pod-{index}", f"uid-{index}") for index in (0, 1)}
RUNS: dict[str, Any] = {"round": "3.7", "phase": PhaseName.RUNNING, "members": 2, "world": 4}
COLLECTS = RUNS | {"phase": PhaseName.RENDEZVOUS}
FAILED = PastRestart(40.0, TrainingReason.WORKER_FAILED, "rank 1 exited with 1", True)
MOVED = PastRestart(60.0, TrainingReason.REGROUPING, "pod-2 joined", False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(state(phase=Waiting()), Report(), id="nothing yet"),
        pytest.param(state(member(0), member(1)), Report(**RUNS), id="a round runs"),
        pytest.param(
            state(member(0, step=5, total=9, metrics={"a": 1.0}), member(1, step=6, total=9, metrics={"a": 2.0})),
            Report(**RUNS, step=6, total=9, metrics={"a": 2.0}),
            id="steps and numbers are those of the member that is furthest",
        ),
        pytest.param(
            state(member(0, step=5, total=9, shown=ShownProgress(remaining=8, rate=0.5)), member(1)),
            Report(**RUNS, step=5, total=9, remaining=8, rate=0.5),
            id="with the speed and the remaining time",
        ),
        pytest.param(
            state(
                member(0, shown=ShownProgress(5, 10, 50, 7, 0.5), metrics={"loss": 1.0}),
                member(1, shown=ShownProgress(percent=90)),
            ),
            Report(**RUNS, step=5, total=10, percent=50, remaining=7, rate=0.5, metrics={"loss": 1.0}),
            id="of a script that reports no steps it is what its agent sees",
        ),
        pytest.param(
            state(member(0, shown=ShownProgress(percent=40)), member(1, shown=ShownProgress(percent=41))),
            Report(**RUNS, percent=41),
            id="a percentage alone",
        ),
        pytest.param(
            state(member(0), member(1, metrics={"loss": 1.0})), Report(**RUNS, metrics={"loss": 1.0}), id="a loss alone"
        ),
        pytest.param(
            state(member(0, port=1), member(1), phase=Rendezvous(NOW, "x", ROUND)),
            Report(**COLLECTS, waiting=1),
            id="between two rounds, a member waits",
        ),
        pytest.param(state(member(0), member(1), member(2, port=1)), Report(**RUNS, spares=1), id="a spare waits"),
        pytest.param(
            state(restarts=1, history=(FAILED, MOVED)),
            Report(**RUNS, restarts=1, last_restart=LastRestart(60.0, FAILED.reason, FAILED.message)),
            id="the last restart is the last failure, with its age",
        ),
        pytest.param(
            state(phase=Ended(End(EndReason.BUDGET, "all used up", 7, NOW), ROUND)),
            Report(**RUNS | {"phase": PhaseName.ENDED}, ended=TrainingEnd("RestartsUsedUp", "all used up", 7)),
            id="an end",
        ),
        pytest.param(
            state(
                member(0, step=3, total=9, connection=None),
                phase=Ended(End(EndReason.SUCCEEDED, "", 0, NOW), ROUND, member(1, step=9, total=9)),
            ),
            Report(**RUNS | {"phase": PhaseName.ENDED}, step=9, total=9, ended=TrainingEnd("Succeeded", "", 0)),
            id="the steps at the end, also when its member has gone",
        ),
        pytest.param(
            state(problems={TrainingReason.WAITING: "for pod-2"}),
            Report(**RUNS, problems={"RendezvousWaiting": "for pod-2"}),
            id="problems by their reasons",
        ),
        pytest.param(
            state(member(0), member(1), phase=Running(replace(ROUND, world_size=0))),
            Report(**RUNS),
            id="the processes of an adopted round are counted once all of it are here",
        ),
        pytest.param(
            state(member(0), phase=Running(replace(ROUND, world_size=0, ranks=(0, None)))),
            Report(**RUNS | {"world": 0}),
            id="before, they are unknown",
        ),
        pytest.param(
            state(member(0), member(1, step=6), member(2, step=6, total=8)),
            Report(**RUNS, step=6),
            id="of two that are equally far, the first one",
        ),
        pytest.param(
            state(member(0, port=1), member(1, port=2), member(2, port=3)),
            Report(**RUNS, spares=1),
            id="members of the round are no spares",
        ),
        pytest.param(
            state(member(0), pods=PODS, silent={1: SilentAgent("uid-1", NOW - 7)}),
            Report(**RUNS, silent=(SilentPod("uid-1", 7.0),)),
            id="a pod whose agent is silent, and since when",
        ),
        pytest.param(
            state(member(0), pods=PODS, silent={1: SilentAgent("uid-1", NOW + 1)}),
            Report(**RUNS, silent=(SilentPod("uid-1", 0.0),)),
            id="no time is negative",
        ),
        pytest.param(
            state(member(0), pods={0: PODS[0]}, silent={1: SilentAgent("uid-1", NOW - 7)}),
            Report(**RUNS),
            id="the pod whose agent is silent terminates",
        ),
        pytest.param(
            state(member(0, heard_at=NOW - LEASE_SECONDS), pods=PODS, silent={1: SilentAgent("uid-1", NOW)}),
            Report(**RUNS),
            id="no agent is heard: none is silent",
        ),
        pytest.param(
            state(member(0, connection=None), pods=PODS, silent={1: SilentAgent("uid-1", NOW)}),
            Report(**RUNS),
            id="no agent is connected: none is silent",
        ),
        pytest.param(
            state(history=(replace(FAILED, at=NOW + 1),)),
            Report(**RUNS, last_restart=LastRestart(0.0, FAILED.reason, FAILED.message)),
            id="a restart has just been",
        ),
        pytest.param(
            state(phase=Stalled(NOW, "timed out", ROUND)),
            Report(**RUNS | {"phase": PhaseName.STALLED}),
            id="after a rendezvous timeout nothing runs",
        ),
    ],
)
def test_report(given: JobState, expected: Report) -> None:
    assert summarize(given, NOW) == expected


def test_who_is_turned_away_is_a_problem_told_once_and_forgiven_after_a_minute() -> None:
    first = decide(state(checked_at=NOW), AuthenticationFailed("a stranger"), NOW)
    second = decide(first.state, AuthenticationFailed("another"), NOW + 1)
    assert [event.reason for event in first.events] == [TrainingReason.AGENT_REFUSED]
    assert second.events == ()
    assert second.state.problems == {TrainingReason.AGENT_REFUSED: "a stranger"}
    soon = decide(replace(second.state, checked_at=NOW + 60), Tick(), NOW + 60)
    assert TrainingReason.AGENT_REFUSED in soon.state.problems
    assert TrainingReason.AGENT_REFUSED not in decide(soon.state, Tick(), NOW + 61).state.problems
