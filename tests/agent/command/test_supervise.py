"""The first process: what it does next."""

from signal import SIGINT, SIGTERM

import pytest

from pytorchjob_agent.command.supervise import Exit, Forward, Kill, LauncherCrash, Relaunch, View, Wait, next_action
from pytorchjob_agent.contract.reasons import ExitReason
from pytorchjob_agent.contract.termination import TerminationMessage

REPORT = TerminationMessage(ExitReason.WORKER_FAILED, 17, rank=1, message="no such luck")


def asked(
    now: float,
    child: int | None = None,
    *,
    forwarded: bool = True,
    report: TerminationMessage | LauncherCrash = LauncherCrash.RUNNING,
) -> View:
    """Return the view after a SIGTERM at second 10."""
    return View(now, 25, signals=(SIGTERM,), asked_at=10.0, forwarded=forwarded, child=child, report=report)


@pytest.mark.parametrize(
    ("view", "step"),
    [
        pytest.param(View(0, 25), Wait(None, "the workers run"), id="nothing happened: wait"),
        pytest.param(
            asked(10, forwarded=False), Forward(SIGTERM, "SIGTERM received"), id="a signal is passed to the launcher"
        ),
        pytest.param(
            asked(11),
            Wait(35.0, "the workers stop after SIGTERM"),
            id="then it has its time",
        ),
        pytest.param(
            asked(35),
            Kill("the workers did not stop within 25 s after SIGTERM"),
            id="and when the time is over all are killed",
        ),
        pytest.param(
            View(11, 25, signals=(SIGINT, SIGINT), asked_at=10, forwarded=True),
            Kill("a second signal after SIGINT: killing the workers at once"),
            id="a second Ctrl-C does not wait",
        ),
    ],
)
def test_while_the_launcher_runs(view: View, step: object) -> None:
    assert next_action(view) == step


@pytest.mark.parametrize(
    ("view", "code", "words"),
    [
        pytest.param(View(0, 25, child=0), 0, "succeeded", id="success"),
        pytest.param(View(0, 25, child=17, report=REPORT), 17, "no such luck", id="the worker's own code and words"),
        pytest.param(View(0, 25, child=-9), 137, "killed by SIGKILL (out of memory?)", id="a launcher that was killed"),
        pytest.param(View(0, 25, child=3), 3, "without a message", id="a launcher that says nothing"),
        pytest.param(asked(12, -15), 143, "SIGTERM", id="asked to go: 143"),
        pytest.param(asked(12, 1, report=REPORT), 143, "SIGTERM", id="workers that die of the signal"),
        pytest.param(View(12, 25, child=-2, signals=(SIGINT,)), 130, "SIGINT", id="Ctrl-C: 130"),
        pytest.param(asked(12, 0), 0, "succeeded", id="finished just before the signal: success"),
    ],
)
def test_when_the_launcher_is_gone(view: View, code: int, words: str) -> None:
    step = next_action(view)
    assert isinstance(step, Exit)
    assert step.exit_code == code
    assert words in step.reason
    assert (step.message is None) == (code == 0)


@pytest.mark.parametrize(
    ("view", "code"),
    [
        pytest.param(View(0, 25, child=2, report=LauncherCrash.BEFORE), 2, id="its own parser refuses the arguments"),
        pytest.param(View(0, 25, child=-9, report=LauncherCrash.BEFORE, lives=3), 137, id="killed: not started again"),
        pytest.param(asked(12, -15, report=LauncherCrash.BEFORE), 143, id="a signal"),
        pytest.param(View(0, 25, child=0, report=LauncherCrash.BEFORE), 0, id="success"),
    ],
)
def test_a_users_launcher_that_runs_no_workers_of_the_agent_ends_as_it_likes(view: View, code: int) -> None:
    step = next_action(view)
    assert isinstance(step, Exit)
    assert (step.exit_code, step.message) == (code, None)


def test_a_launcher_that_was_killed_with_its_workers_is_started_again() -> None:
    assert isinstance(next_action(View(0, 25, child=-9, lives=1)), Relaunch)
