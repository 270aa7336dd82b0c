import pytest

from pytorchjob.local.kubelet import EarlyExits, ExitDecision, after_exit, back_off
from pytorchjob_operator.model import RestartPolicy
from pytorchjob_operator.observed import PodPhase

ALWAYS, ON_FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.NEVER


@pytest.mark.parametrize(
    ("policy", "code", "verdict"),
    [
        pytest.param(NEVER, 0, (PodPhase.SUCCEEDED, None), id="Never: 0 is success"),
        pytest.param(NEVER, 1, (PodPhase.FAILED, None), id="Never: anything else is failure"),
        pytest.param(ON_FAILURE, 0, (PodPhase.SUCCEEDED, None), id="OnFailure: 0 is success"),
        pytest.param(ON_FAILURE, 1, (PodPhase.RUNNING, 1.0), id="OnFailure: failure starts again in place"),
        pytest.param(ALWAYS, 0, (PodPhase.RUNNING, 1.0), id="Always: success starts again too"),
    ],
)
def test_an_end_is_judged_by_the_policy(
    policy: RestartPolicy, code: int, verdict: tuple[PodPhase, float | None]
) -> None:
    found = after_exit(policy, code, crashes=1)
    assert (found.phase, found.restart_in) == verdict


def test_a_signal_is_named() -> None:
    assert after_exit(NEVER, 137, 1) == ExitDecision(PodPhase.FAILED, "exited with 137 (SIGKILL)")


def test_the_back_off_doubles_and_is_bounded() -> None:
    assert [back_off(crashes) for crashes in (0, 1, 2, 3, 4, 5, 6, 10**9)] == [0, 1, 2, 4, 8, 16, 30, 30]


def counted(*exits: tuple[int, float]) -> tuple[int, int]:
    """Crashes in a row, and how many of them had the same code as the last."""
    found = EarlyExits()
    for code, ran in exits:
        found = found.then(code, ran)
    return found.crashes, found.same


@pytest.mark.parametrize(
    ("exits", "expected"),
    [
        pytest.param([(2, 0.1), (2, 59.0), (2, 1.0)], (3, 3), id="the same early exit three times"),
        pytest.param([(2, 0.1), (1, 0.1), (2, 0.1)], (3, 1), id="other codes between them"),
        pytest.param([(2, 0.1), (2, 0.1), (2, 60.0)], (1, 0), id="a long run is no crash loop"),
        pytest.param([(2, 60.0), (2, 0.1)], (2, 1), id="a crash after a long run is the first"),
    ],
)
def test_early_exits(exits: list[tuple[int, float]], expected: tuple[int, int]) -> None:
    assert counted(*exits) == expected
